"""Where the photos of a folder are, and where its index is kept.

The index lies outside the photos, so that a read-only folder can be searched and nothing is left between the
pictures: in `$FISHERMIX_HOME`, else in the user's data directory, under a name made of the folder's path.
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


def readable_name(path: str) -> str:
    """A file name for the eye: bytes that are no text become question marks."""
    return path.encode("utf8", "replace").decode("utf8")


def photo_folder(folder: str | os.PathLike) -> Path:
    """The absolute path of an existing folder."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise FishermixError(f"{folder} is not a folder: name the folder that holds your photos")
    return path.resolve()


def photos_in(folder: Path) -> tuple[dict[str, Stamp], dict[str, str]]:
    """Relative paths, with '/' between the parts, and stamps of all photos below `folder`; and the folders in
    it that could not be read, each ending in '/', with the reason.

    Hidden files and folders are left out, and so are symbolic links: what an index can show lies inside its
    folder.
    """
    closed: dict[str, str] = {}
    return dict(sorted(_walk(folder, "", closed))), closed


def _walk(folder: Path, prefix: str, closed: dict[str, str]) -> Iterator[tuple[str, Stamp]]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        if prefix:
            closed[prefix] = f"cannot be read ({error.strerror})"
            return
        raise FishermixError(f"{folder} cannot be read ({error.strerror})") from error
    for entry in entries:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(folder / entry.name, f"{prefix}{entry.name}/", closed)
            elif is_photo_name(entry.name) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                yield f"{prefix}{entry.name}", Stamp(status.st_size, status.st_mtime_ns)
        except OSError:
            continue  # gone since the listing


def default_index(folder: Path) -> Path:
    """Where the index of this folder is kept unless another place is named."""
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return data_folder() / "indexes" / f"{folder.name or 'root'}-{digest}"
