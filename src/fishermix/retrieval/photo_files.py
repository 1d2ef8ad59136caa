"""The photos of a folder, and the place of its index.

The index is kept outside the photo folder, so that a read-only folder can be searched and no files appear
next to the photos: in `$FISHERMIX_HOME`, or else in the user's data directory, under a name made from the
folder's path.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from fishermix.errors import FishermixError
from fishermix.paths import data_folder
from fishermix.retrieval.store import Stamp

PHOTO_SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"})


def is_photo_name(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in PHOTO_SUFFIXES


def replace_undecodable(path: str) -> str:
    """A file name as valid text: bytes that are not text become question marks."""
    return path.encode("utf8", "replace").decode("utf8")


def list_photos(folder: Path) -> tuple[dict[str, Stamp], dict[str, str]]:
    """List all photos below `folder`.

    Returns the stamps of the photos by relative path, with '/' between the parts; and the reasons why
    subfolders could not be read, by relative path ending in '/'. Hidden files and folders and symbolic links
    are skipped: everything that an index shows is inside its folder.
    """
    unreadable: dict[str, str] = {}
    return dict(sorted(_walk(folder, "", unreadable))), unreadable


def _walk(folder: Path, prefix: str, unreadable: dict[str, str]) -> Iterator[tuple[str, Stamp]]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        if prefix:
            unreadable[prefix] = f"cannot be read ({error.strerror})"
            return
        raise FishermixError(f"{folder} cannot be read ({error.strerror}).") from error
    for entry in entries:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(folder / entry.name, f"{prefix}{entry.name}/", unreadable)
            elif is_photo_name(entry.name) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                yield f"{prefix}{entry.name}", Stamp(status.st_size, status.st_mtime_ns)
        except OSError:
            continue  # deleted since the listing


def default_index(folder: Path) -> Path:
    """The directory of this folder's index, unless the user names another one."""
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return data_folder() / "indexes" / f"{folder.name or 'root'}-{digest}"


def list_indexes() -> list[Path]:
    """The directories of all indexes in the default place."""
    home = data_folder() / "indexes"
    return sorted(home.iterdir()) if home.is_dir() else []
