"""The photos of a folder, and the place of its index.

The index is kept outside the photo folder, so that a read-only folder can be searched and no files appear
next to the photos: in `$FISHERMIX_HOME`, or else in the user's data directory, under a name made from the
folder's path.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fishermix.errors import FishermixError
from fishermix.paths import data_folder
from fishermix.retrieval.ignore import (
    IGNORE_FILE,
    Pattern,
    is_folder_of_a_program,
    is_ignored,
    parse_patterns,
    read_ignore_file,
    read_ignore_files_above,
)
from fishermix.retrieval.store import Stamp
from fishermix.vision.formats import RAW, VIDEO, Format, find_format, is_photo_name

__all__ = ["Listing", "default_index", "is_photo_name", "list_indexes", "list_photos", "scan_folder"]
LIVE_PHOTO = ".mov"  # the video that a phone keeps next to a photo of the same name


@dataclass
class Listing:
    """What a folder contains.

    photos : stamps by relative path, with '/' between the parts
    unreadable : why subfolders could not be read, by relative path ending in '/'
    skipped : the number of files, by suffix, that look like photos and are not read
    left_out : the number of files and folders that are left out, by the reason
    """

    photos: dict[str, Stamp] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)

    def explain_left_out(self) -> list[str]:
        """A sentence about what was left out; none if nothing was."""
        if not self.left_out:
            return []
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.left_out.items()))
        return [f"Left out: {reasons}."]


def replace_undecodable(path: str) -> str:
    """A file name as valid text: bytes that are not text become question marks."""
    return path.encode("utf8", "replace").decode("utf8")


def scan_folder(folder: Path, exclude: Sequence[str] = (), root: Path | None = None) -> Listing:
    """List all photos below `folder`, except for those that a glob of `exclude` matches.

    Hidden files and folders, folders of other programs, what a .fishermixignore names and symbolic links are
    skipped: everything that an index shows is inside its folder. A RAW photo next to a processed photo of the
    same name is not listed: both are one photo. The same holds for the video of a Live Photo.

    root : the folder above with the index; what its .fishermixignore names is skipped, too
    """
    above = "" if root is None else f"{folder.relative_to(root).as_posix()}/"
    ignored = [] if root is None else read_ignore_files_above(root, folder)
    listing = Listing()
    excluded = parse_patterns(exclude, above) if exclude else []
    found = _walk(folder, above, listing, ignored, excluded)
    listing.photos = {path.removeprefix(above): stamp for path, stamp in sorted(found)}
    listing.unreadable = {path.removeprefix(above): why for path, why in listing.unreadable.items()}
    if "" in listing.unreadable:
        raise FishermixError(f"{folder} {listing.unreadable['']}.")
    return listing


def list_photos(folder: Path) -> tuple[dict[str, Stamp], dict[str, str]]:
    """The stamps of all photos below `folder`, and the reasons why subfolders could not be read."""
    listing = scan_folder(folder)
    return listing.photos, listing.unreadable


def _walk(
    folder: Path, prefix: str, listing: Listing, ignored: Sequence[Pattern], exclude: Sequence[Pattern]
) -> Iterator[tuple[str, Stamp]]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        listing.unreadable[prefix] = f"cannot be read ({error.strerror})"
        return
    if any(entry.name == IGNORE_FILE for entry in entries):
        ignored = [*ignored, *read_ignore_file(folder, prefix)]
    formats, installed = list[Format | None](), set[str]()
    for entry in entries:
        formats.append(found := find_format(entry.name))
        if found is not None and found.name not in installed and found.is_installed:
            installed.add(found.name)
    pictures: list[os.DirEntry[str]] = []
    readable, processed = set[str](), set[str]()  # suffixes, and the stems of photos that are no RAW
    for entry, found in zip(entries, formats):
        try:
            if entry.is_symlink() or _leave_out(entry, found is None, prefix, listing, ignored, exclude):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(folder / entry.name, f"{prefix}{entry.name}/", listing, ignored, exclude)
            elif found is not None and entry.is_file(follow_symlinks=False):
                pictures.append(entry)
                stem, suffix = os.path.splitext(entry.name.lower())
                if found.name in installed:
                    readable.add(suffix)
                    if found is not RAW and found is not VIDEO:
                        processed.add(stem)
        except OSError:
            continue  # deleted since the listing
    for entry in pictures:
        stem, suffix = os.path.splitext(entry.name.lower())
        if (suffix in RAW.suffixes or suffix == LIVE_PHOTO) and stem in processed:
            continue
        if suffix not in readable:
            listing.skipped[suffix] += 1
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        yield f"{prefix}{entry.name}", Stamp(status.st_size, status.st_mtime_ns)


def _leave_out(
    entry: os.DirEntry[str],
    is_other: bool,
    prefix: str,
    listing: Listing,
    ignored: Sequence[Pattern],
    exclude: Sequence[Pattern],
) -> bool:
    """Whether a file or folder is left out; counts it if it is a folder or looks like a photo.

    is_other : whether the name is not that of a picture
    """
    is_folder = entry.is_dir(follow_symlinks=False)
    if not is_folder and is_other:
        return entry.name.startswith(".")
    path = prefix + entry.name
    if entry.name.startswith("."):
        reason = "hidden"
    elif is_folder and is_folder_of_a_program(entry.name):
        reason = entry.name
    elif ignored and is_ignored(path, is_folder, ignored):
        reason = f"by {IGNORE_FILE}"
    elif exclude and is_ignored(path, is_folder, exclude):
        reason = "by --exclude"
    else:
        return False
    listing.left_out[reason] += 1
    return True


def default_index(folder: Path) -> Path:
    """The directory of this folder's index, unless the user names another one."""
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return data_folder() / "indexes" / f"{folder.name or 'root'}-{digest}"


def list_indexes() -> list[Path]:
    """The directories of all indexes in the default place."""
    home = data_folder() / "indexes"
    return sorted(home.iterdir()) if home.is_dir() else []
