"""What an update of the library did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fishermix.errors import FishermixError


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
