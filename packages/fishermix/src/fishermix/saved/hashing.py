"""SHA-256 of files, of downloads and of values."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from fishermix.errors import FishermixError


def sha256_of_file(path: str | os.PathLike) -> str:
    """The SHA-256 of a file's content, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_values(*values: object) -> str:
    """The SHA-256 of JSON values and of arrays, which may also be in lists and dictionaries."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=_describe_array).encode()).hexdigest()


def _describe_array(array: ArrayLike) -> list[object]:
    data = np.ascontiguousarray(array)
    return [data.dtype.str, data.shape, hashlib.sha256(data.tobytes()).hexdigest()]


def check_download(path: Path, sha256: str) -> None:
    """Check a downloaded file before anything opens it; a wrong one is deleted."""
    found = sha256_of_file(path)
    if found != sha256:
        path.unlink()
        raise FishermixError(
            f"The downloaded file {path.name} has the SHA-256 {found}, not {sha256}. It was deleted. Run the "
            "command again; if the message persists, the file on the server has changed: do not use it.",
            code="damaged",
        )
