"""Files that are replaced in one step and reach the disk, and the folders that they are in."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fishermix.errors import FishermixError


def write_atomically(path: str | os.PathLike, data: bytes, private: bool = False) -> None:
    """Replace the file `path` by `data` in one step. Only its owner can read a private file."""
    path = Path(path)
    temporary = path.parent / f".{path.name}.{os.urandom(4).hex()}.tmp"
    binary = getattr(os, "O_BINARY", 0)  # Windows
    # The system applies the umask: asking for it would change it for other threads.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | binary, 0o600 if private else 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if private:
            os.chmod(temporary, 0o600)  # a umask of 777 would leave nothing
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can: a rename then survives a power loss."""
    with suppress(OSError):  # Windows, some network drives
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a folder, unless it exists, and those above it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise FishermixError(f"{folder} is a file. Name a folder.", code="wrong_folder") from error
    except (OSError, ValueError) as error:  # a ValueError: no file can have such a name
        reason = getattr(error, "strerror", None) or error
        raise FishermixError(
            f"Cannot create the folder {str(folder)!r} ({reason}).", code="wrong_folder"
        ) from error
