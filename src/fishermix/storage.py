"""Folders of `config.json` and one safetensors file, written whole or not at all; loading runs no code.

`config.json` names the tensor file, which has the hash of its content in its name, and the folders inside
that belong to it (`parts`). A save

1. adds the names of what it is about to write to `config.json`, as `pending`,
2. writes these files next to the old ones,
3. replaces `config.json` in one step,
4. removes what the old `config.json` named and the new one does not.

A crash at any moment leaves the old state or the new one, and the next save clears up what the crash left.
Nothing is ever removed that no `config.json` of the folder has named.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from fishermix.errors import FishermixError

FORMAT = "fishermix"
CONFIG = "config.json"
NAME_DIGITS = 12  # of the hash, in the name of a file


def write_atomically(path: str | os.PathLike, data: bytes, private: bool = False) -> None:
    """Replace the file `path` by `data` in one step. Only its owner can read a private file."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o600 if private else 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save_folder(
    folder: str | os.PathLike,
    kind: str,
    version: int,
    config: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    parts: Mapping[str, Callable[[Path], None]] | None = None,
) -> None:
    """Write `config` (plain JSON values) and `tensors` as a folder of this `kind`.

    An existing folder is replaced only if it holds the same kind; anything else in it stays untouched. Each
    of `parts` is called with the path of a folder to write, which `part_folder` finds again by its name.
    """
    folder = make_place(folder, kind)
    before = _read_head(folder)
    old = before or {"format": FORMAT, "kind": kind, "version": version}
    temporary = folder / f".tensors.{os.getpid()}.tmp"
    written = [temporary.name]
    try:
        _write_config(folder, {**old, "pending": [*_names_in(old), *written]})
        digest = _write_tensors(temporary, tensors)
        head: dict[str, Any] = {
            "format": FORMAT,
            "kind": kind,
            "version": version,
            "tensors": f"tensors-{digest[:NAME_DIGITS]}.safetensors",
            "sha256": digest,
            "parts": {name: f"{name}-{digest[:NAME_DIGITS]}" for name in parts or {}},
        }
        written += _names_in(head)
        _write_config(folder, {**old, "pending": [*_names_in(old), *written]})
        os.replace(temporary, folder / head["tensors"])
        for name, write in (parts or {}).items():
            write(folder / head["parts"][name])
        _write_config(folder, {**head, **config})
    except BaseException:
        for name in set(written) - set(_names_in(old)):
            _remove(folder / name)
        with suppress(OSError):  # a full disk: what is there already serves as well
            _write_config(folder, before) if before else (folder / CONFIG).unlink(missing_ok=True)
        raise
    for name in set(_names_in(old)) - set(_names_in(head)):
        _remove(folder / name)


def _write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> str:
    """Write a safetensors file, flushed to disk; returns its SHA-256."""
    try:
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path)
    except SafetensorError as error:
        if found := re.search(r"os error (\d+)", str(error)):  # a full disk, for example
            number = int(found[1])
            raise OSError(number, os.strerror(number), os.fspath(path)) from error
        raise
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    os.chmod(path, 0o666 & ~_umask())
    return sha256_of_file(path)


def _write_config(folder: Path, config: Mapping[str, Any]) -> None:
    write_atomically(folder / CONFIG, (json.dumps(config, indent=1, allow_nan=False) + "\n").encode())


def _read_head(folder: Path) -> dict[str, Any] | None:
    """`config.json` of a saved folder, finished or not, or None if it is not one."""
    try:
        head = json.loads((folder / CONFIG).read_text("utf8"))
    except (OSError, ValueError, RecursionError):
        return None
    return head if isinstance(head, dict) and head.get("format") == FORMAT else None


def _names_in(config: Mapping[str, Any]) -> list[str]:
    """What a `config.json` says is its own: plain names of files and folders next to it."""
    pending, parts = config.get("pending"), config.get("parts")
    names: list[Any] = [config.get("tensors")]
    names += pending if isinstance(pending, list) else []
    names += parts.values() if isinstance(parts, dict) else []
    return [name for name in names if _is_plain_name(name) and name != CONFIG]


def _is_plain_name(name: Any) -> bool:
    return isinstance(name, str) and name not in ("", ".", "..") and Path(name).name == name


def _remove(path: Path) -> None:
    """Remove a file, a link, or what a saved folder names as its own and the folder if that empties it."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    elif head := _read_head(path):
        for name in _names_in(head):
            _remove(path / name)
        (path / CONFIG).unlink()
        with suppress(OSError):
            path.rmdir()


def make_place(folder: str | os.PathLike, kind: str) -> Path:
    """Create the folder if it does not exist, and check that something of this kind can be saved in it."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise FishermixError(f"{folder} is a file. Name a folder to save the {kind} in.")
    if not is_vacant(folder, kind) and (_read_head(folder) or {}).get("kind") != kind:
        raise FishermixError(f"{folder} is not empty and holds no {kind}. Name a new or empty folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FishermixError(f"Cannot create the folder {folder} ({error.strerror}).") from error
    return folder


def is_vacant(folder: Path, kind: str) -> bool:
    """Whether nothing was saved here so far: no folder, an empty one, or a first save that was killed."""
    if not folder.exists():
        return True
    if head := _read_head(folder):
        return head.get("kind") == kind and "tensors" not in head
    # A save killed at its very beginning leaves nothing but the half-written config.json.
    return folder.is_dir() and all(fnmatch(path.name, f".{CONFIG}.*.tmp") for path in folder.iterdir())


def sha256_of_file(path: str | os.PathLike) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_kind(folder: Path) -> str | None:
    """The kind of a folder whose save was completed, or None."""
    head = _read_head(folder)
    return head.get("kind") if head and "tensors" in head else None


def part_folder(folder: str | os.PathLike, config: Mapping[str, Any], name: str) -> Path | None:
    """The folder of a part that a checked config names, or None if it has no such part."""
    parts = config.get("parts")
    found = parts.get(name) if isinstance(parts, dict) else None
    if found is None:
        return None
    if not _is_plain_name(found):
        raise FishermixError(f"'parts' in {Path(folder) / CONFIG} is invalid: the file is damaged.")
    return Path(folder) / found


def load_config(folder: str | os.PathLike, kind: str, version: int) -> dict[str, Any]:
    """The checked `config.json` of a folder of this kind."""
    folder = Path(folder)
    path = folder / CONFIG
    if not path.is_file():
        raise FishermixError(f"{folder} holds no {CONFIG} and so no saved {kind}")
    try:
        config = json.loads(path.read_text("utf8"))
    except ValueError as error:
        raise FishermixError(f"{path} is not valid JSON ({error}): the file is damaged") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT or config.get("kind") != kind:
        found = config.get("kind") if isinstance(config, dict) else None
        raise FishermixError(f"{folder} holds no {kind}: its {CONFIG} is of {found or 'something else'}")
    if not isinstance(config.get("version"), int) or config["version"] > version:
        raise FishermixError(
            f"{folder} was written by a newer fishermix (version {config.get('version')} of {kind}; "
            f"this one reads up to {version}): upgrade fishermix"
        )
    return config


def tensor_path(folder: str | os.PathLike, config: Mapping[str, Any]) -> Path:
    """The tensor file that a checked config names; it lies inside the folder."""
    name = config.get("tensors")
    if name is None and "pending" in config:
        raise FishermixError(f"Saving {folder} was interrupted before it was complete. Save it again.")
    if not _is_plain_name(name):
        where = Path(folder) / CONFIG
        raise FishermixError(f"'tensors' is missing or invalid in {where}: the file is damaged.")
    path = Path(folder) / str(name)
    if not path.is_file():
        raise FishermixError(f"{path} is missing: the folder is incomplete, copy it again")
    return path


def load_folder(
    folder: str | os.PathLike, kind: str, version: int
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Config and tensors of a saved folder; the tensors' hash is checked."""
    config = load_config(folder, kind, version)
    path = tensor_path(folder, config)
    if sha256_of_file(path) != config.get("sha256"):
        raise FishermixError(f"{path} is damaged: its content does not match the hash in {CONFIG}")
    try:
        return config, load_file(path)
    except SafetensorError as error:
        raise FishermixError(f"{path} cannot be read ({error}): the file is damaged") from error


def require_tensor(
    tensors: Mapping[str, np.ndarray], name: str, shape: tuple[int | None, ...], where: str | os.PathLike
) -> np.ndarray:
    """`tensors[name]` if it has this shape (None matches any length) and finite values."""
    if name not in tensors:
        raise FishermixError(f"{where} lacks the tensor '{name}'")
    value = tensors[name]
    if value.ndim != len(shape) or any(want not in (None, have) for want, have in zip(shape, value.shape)):
        raise FishermixError(f"{where}: tensor '{name}' has shape {value.shape}, expected {shape}")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise FishermixError(f"{where}: tensor '{name}' holds NaN or infinity")
    return value


def parse_feature_names(
    config: Mapping[str, Any], n_features: int, where: str | os.PathLike
) -> list[str] | None:
    """`feature_names_in` of a saved estimator, the names of the columns it was fitted to; None if absent."""
    names = config.get("feature_names_in")
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != n_features or not all(isinstance(n, str) for n in names):
        raise FishermixError(f"'feature_names_in' in {where} must be a list of {n_features} names.")
    return names
