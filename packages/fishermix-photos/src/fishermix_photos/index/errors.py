"""What can be wrong with a library, each with a code."""

from __future__ import annotations

from fishermix.errors import FishermixError


class LibraryBusy(FishermixError):
    """Another process is updating the folder."""

    code = "library_busy"


class LibraryDamaged(FishermixError):
    """The files of the library cannot be used; `values["place"]` is where they are."""

    code = "library_damaged"


class LibraryAway(FishermixError):
    """There is no library in the place that was named; `values["place"]` is it. Is its disk mounted?"""

    code = "library_away"


class OtherModel(FishermixError):
    """The library was made with another model. An update encodes its photos again."""

    code = "other_model"


class OtherVersion(FishermixError):
    """The tables of the library are those of another fishermix, which this one does not know."""

    code = "other_version"


class FolderAway(FishermixError):
    """A folder of the library does not exist now or has no photos any more: is the disk mounted?"""

    code = "folder_away"
