"""What is asked of a photo library and what it answers: plain values for commands, pages and programs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fishermix.errors import FishermixError

from fishermix_photos.details import Details
from fishermix_photos.query import NO_FILTER, Filter, Term

Band = Literal["likely", "maybe", "unlikely"]
Sort = Literal["score", "date", "oldest", "name"]
NO_DETAILS = Details()
MOST_THUMBNAILS, THUMBNAIL_SIDE = 24, 160  # of results in a notebook


class LibraryBusy(FishermixError):
    """Another process is updating the folder."""

    code = "library_busy"


class LibraryDamaged(FishermixError):
    """The files of the library cannot be used; `values["place"]` is where they are."""

    code = "library_damaged"


class OtherModel(FishermixError):
    """The library was made with another model. An update encodes its photos again."""

    code = "other_model"


class FolderAway(FishermixError):
    """A folder of the library does not exist now or has no photos any more: is the disk mounted?"""

    code = "folder_away"


class NotInLibrary(FishermixError):
    """The library has no such folder; `values["covering"]` is the one that contains it, if any."""

    code = "not_in_library"


class UnknownPhoto(FishermixError):
    """The library has no photo with this id."""

    code = "unknown_photo"


@dataclass(frozen=True)
class Query:
    """What a search looks for.

    Parameters
    ----------
    terms : tuple of Term
        Sentences and photos, see `parse_query`.
    folders : tuple of Path
        Only photos below one of these folders. Empty: the whole library.
    filter : Filter
        Only photos that meet its conditions.
    sort : {"score", "date", "oldest", "name"}
        Best first; or newest first, oldest first, by name. In a search, the last three show only likely
        photos and maybes, or the best ones if there are none.
    n : int
        At most this many photos.
    offset : int
        Skip this many photos.
    min_probability : float, optional
        Only photos with at least this probability. If there are no probabilities (a query of photos, a model
        without calibration): only photos with unusually high scores.
    min_score : float, optional
        Only photos with at least this score.
    merge_copies : bool
        Whether near copies of one picture take one place if the best come first: see `Photo.similar`.

    See Also
    --------
    fishermix_photos.query.parse_query : makes terms of a line.
    fishermix_photos.PhotoLibrary.search : answers a query.

    Examples
    --------
    >>> from fishermix_photos.query import Filter, parse_query
    >>> query = Query(parse_query("beach - people"), filter=Filter(after="2019"), n=20)
    >>> len(query.terms)
    2
    """

    terms: tuple[Term, ...] = ()
    folders: tuple[Path, ...] = ()
    filter: Filter = NO_FILTER
    sort: Sort = "score"
    n: int = 10
    offset: int = 0
    min_probability: float | None = None
    min_score: float | None = None
    merge_copies: bool = False


@dataclass(frozen=True)
class Photo:
    """A photo of the library, or a frame of a video, or a page of a TIFF file.

    id : identifies the photo in its library: 16 hexadecimal digits
    path : the absolute path of the file; bytes that are not text are escaped as by `os.fsdecode`
    folder : the folder of the library that contains it
    time : of a video frame, in seconds
    page : of a TIFF file, if it is not the first one
    details : when, where and with what it was taken
    score : how well the photo matches the query; None without a query
    probability : that the photo is right, if it can be estimated; `band` is the same in words
    similar : near copies that a search found, too: they take no place of their own
    """

    id: str
    path: str
    folder: str
    time: float | None = None
    page: int | None = None
    details: Details = NO_DETAILS
    score: float | None = None
    probability: float | None = None
    band: Band | None = None
    similar: tuple[Photo, ...] = ()

    @property
    def relative(self) -> str:
        """The path relative to the folder."""
        return self.path[len(self.folder.rstrip("/")) + 1 :]

    @property
    def name(self) -> str:
        """The path from the name of the folder on: "Pictures/2019/dog.jpg"."""
        top = os.path.basename(self.folder)
        return f"{top}/{self.relative}" if top else self.relative

    @property
    def picture(self) -> str:
        """The path with its frame or page, as `open_photo` reads it: "clip.mp4#t=12.5"."""
        if self.page is not None:
            return f"{self.path}#page={self.page}"
        return f"{self.path}#t={self.time:g}" if self.time else self.path


@dataclass(frozen=True)
class Results:
    """What a search found; a notebook shows it as thumbnails.

    Parameters
    ----------
    photos
        In the order of the query.
    more
        Whether there are photos after these.
    total
        The number of all photos that match, if they were listed without a query.
    years
        Those of a list by date, in its order, and the number of photos of each.
    remarks
        How the query was understood.
    unknown_words
        The words of the query that are out of the model's vocabulary.
    nothing_matches
        Whether not one photo is right, which is true nine times out of ten. If this is False and all
        photos are unlikely, the search is not sure.
    is_understood
        Whether the model can make something of the query. If not, all photos are unlikely.
    verdict
        What to say above the photos if not one of them is likely; otherwise empty.
    """

    photos: tuple[Photo, ...] = ()
    more: bool = False
    total: int | None = None
    years: tuple[FacetCount, ...] = ()
    remarks: tuple[str, ...] = ()
    unknown_words: tuple[str, ...] = ()
    nothing_matches: bool = False
    is_understood: bool = True
    verdict: str = ""

    def _repr_html_(self) -> str:
        from html import escape

        from fishermix_photos.contact_sheet import show_picture

        cards = []
        for photo in self.photos[:MOST_THUMBNAILS]:
            score = "" if photo.score is None else f"{photo.score:.3f}<br>"
            picture = show_picture(photo.picture, THUMBNAIL_SIDE)
            text = f"{score}{escape(replace_undecodable(photo.relative))}"
            cards.append(f'<div style="max-width: {THUMBNAIL_SIDE}px">{picture}<br>{text}</div>')
        hidden = len(self.photos) - len(cards)
        rest = f"<p>and {hidden:,} more</p>" if hidden else ""
        return f'<div style="display: flex; flex-wrap: wrap; gap: 1em">{"".join(cards)}</div>{rest}'


@dataclass(frozen=True)
class Changes:
    """What an update did. Of a folder in which nothing changed, it has only what could not be read.

    Parameters
    ----------
    encoded, recognized, removed
        The number of photos: new ones, moved or copied ones that were recognized by their content,
        deleted ones.
    unreadable
        Why files could not be read, by absolute path; the path of a folder ends in a slash.
    skipped
        The number of files, by suffix, that look like photos and are not read.
    remarks
        Sentences about what else happened, such as files that were left out.
    problems
        Folders that could not be updated, with the errors. If there is no other, the error is raised.
    """

    encoded: int = 0
    recognized: int = 0
    removed: int = 0
    unreadable: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    problems: Mapping[Path, FishermixError] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.encoded or self.recognized or self.removed or self.unreadable)


@dataclass(frozen=True)
class FolderStatus:
    """What the library has of a folder.

    photos : the number of files that could be read
    exists : whether the folder is there now
    unreadable : why files could not be read, by absolute path
    skipped : the number of files, by suffix, that look like photos and are not read; only of `status`
    remarks : sentences about files and folders that are left out; only of `status`
    """

    folder: Path
    photos: int
    exists: bool
    unreadable: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """How much a library holds.

    photos : the number of files that could be read: photos, videos and TIFF files
    contents : the number of pictures that differ
    pictures : the number of photos, video frames and TIFF pages
    model_key : identifies the model
    dimension : the length of a stored vector
    bytes : the size of the files of the library
    """

    photos: int
    contents: int
    pictures: int
    model_key: str
    dimension: int
    bytes: int


@dataclass(frozen=True)
class FacetCount:
    """A year, a folder or a kind of files, and its number of photos."""

    name: str
    photos: int


@dataclass(frozen=True)
class Facets:
    """What a user may filter by.

    years : newest first
    folders : such as "Pictures/2019", by name
    kinds : of files, by number
    """

    years: tuple[FacetCount, ...] = ()
    folders: tuple[FacetCount, ...] = ()
    kinds: tuple[FacetCount, ...] = ()


def replace_undecodable(path: str) -> str:
    """A file name as valid text: bytes that are not text become question marks."""
    return path.encode("utf8", "replace").decode("utf8")
