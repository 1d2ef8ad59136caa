"""The photos of a folder, and the place of its index.

The index is kept outside the photo folder, so that a read-only folder can be searched and no files appear
next to the photos: in `$FISHERMIX_HOME`, or else in the user's data directory, under a name made from the
folder's path.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fishermix.errors import FishermixError
from fishermix.paths import data_folder
from fishermix.retrieval.store import Stamp
from fishermix.vision.formats import RAW, VIDEO, find_format, is_photo_name, suffix_of

__all__ = ["Listing", "default_index", "is_photo_name", "list_indexes", "list_photos", "scan_folder"]
LIVE_PHOTO = ".mov"  # the video that a phone keeps next to a photo of the same name


@dataclass
class Listing:
    """What a folder contains.

    photos : stamps by relative path, with '/' between the parts
    unreadable : why subfolders could not be read, by relative path ending in '/'
    skipped : the number of files, by suffix, that look like photos and are not read
    """

    photos: dict[str, Stamp] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)


def replace_undecodable(path: str) -> str:
    """A file name as valid text: bytes that are not text become question marks."""
    return path.encode("utf8", "replace").decode("utf8")


def scan_folder(folder: Path) -> Listing:
    """List all photos below `folder`.

    Hidden files and folders and symbolic links are skipped: everything that an index shows is inside its
    folder. A RAW photo next to a processed photo of the same name is not listed: both are one photo. The same
    holds for the video of a Live Photo.
    """
    listing = Listing()
    listing.photos = dict(sorted(_walk(folder, "", listing)))
    return listing


def list_photos(folder: Path) -> tuple[dict[str, Stamp], dict[str, str]]:
    """The stamps of all photos below `folder`, and the reasons why subfolders could not be read."""
    listing = scan_folder(folder)
    return listing.photos, listing.unreadable


def _walk(folder: Path, prefix: str, listing: Listing) -> Iterator[tuple[str, Stamp]]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        if prefix:
            listing.unreadable[prefix] = f"cannot be read ({error.strerror})"
            return
        raise FishermixError(f"{folder} cannot be read ({error.strerror}).") from error
    pictures: list[os.DirEntry[str]] = []
    for entry in entries:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(folder / entry.name, f"{prefix}{entry.name}/", listing)
            elif find_format(entry.name) is not None and entry.is_file(follow_symlinks=False):
                pictures.append(entry)
        except OSError:
            continue  # deleted since the listing
    processed = {_stem(entry.name) for entry in pictures if _is_processed(entry.name)}
    for entry in pictures:
        if _belongs_to_photo(entry.name) and _stem(entry.name) in processed:
            continue
        if not is_photo_name(entry.name):
            listing.skipped[suffix_of(entry.name)] += 1
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        yield f"{prefix}{entry.name}", Stamp(status.st_size, status.st_mtime_ns)


def _stem(name: str) -> str:
    return os.path.splitext(name)[0].lower()


def _is_processed(name: str) -> bool:
    return is_photo_name(name) and find_format(name) not in (RAW, VIDEO)


def _belongs_to_photo(name: str) -> bool:
    return find_format(name) is RAW or suffix_of(name) == LIVE_PHOTO


def default_index(folder: Path) -> Path:
    """The directory of this folder's index, unless the user names another one."""
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return data_folder() / "indexes" / f"{folder.name or 'root'}-{digest}"


def list_indexes() -> list[Path]:
    """The directories of all indexes in the default place."""
    home = data_folder() / "indexes"
    return sorted(home.iterdir()) if home.is_dir() else []
