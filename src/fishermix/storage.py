"""Folders of `config.json` and one safetensors file, written whole or not at all; loading runs no code.

The tensor file carries the hash of its content in its name and `config.json` names it. A save writes the new
tensor file beside the old one, then replaces `config.json` in one step, then removes what is no longer named:
a crash at any moment leaves the old state or the new one. A folder `NAME-HASH` inside goes with the tensors
of that hash, and comes and goes with them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
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


def write_atomically(path: str | os.PathLike, data: bytes) -> None:
    """Replace the file `path` by `data` in one step."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
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
    beside: Callable[[str], None] | None = None,
) -> None:
    """Write `config` (plain JSON values) and `tensors` as a folder of this `kind`.

    An existing folder is replaced only if it holds the same kind; anything else in it stays untouched.
    `beside` is called with the hash of the tensors before `config.json` is written, to put a folder
    `NAME-HASH` there.
    """
    folder = make_place(folder, kind)
    temporary = folder / f".tensors.{os.getpid()}.tmp"
    try:
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, temporary)
        digest = sha256_of_file(temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        tensor_file = folder / f"tensors-{digest[:NAME_DIGITS]}.safetensors"
        os.replace(temporary, tensor_file)
    finally:
        temporary.unlink(missing_ok=True)
    if beside:
        beside(digest[:NAME_DIGITS])
    head = {"format": FORMAT, "kind": kind, "version": version, "tensors": tensor_file.name, "sha256": digest}
    write_atomically(
        folder / CONFIG, (json.dumps({**head, **config}, indent=1, allow_nan=False) + "\n").encode()
    )
    for stale in folder.iterdir():
        if digest[:NAME_DIGITS] in stale.name or not _is_left_by_a_crash(stale):
            continue
        if stale.is_dir():
            shutil.rmtree(stale)
        else:
            stale.unlink(missing_ok=True)


def make_place(folder: str | os.PathLike, kind: str) -> Path:
    """The folder, made if need be, if something of this kind can be saved in it."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise FishermixError(f"{folder} is a file: name a folder to save the {kind} in")
    if folder.is_dir() and read_kind(folder) != kind and not all(map(_is_left_by_a_crash, folder.iterdir())):
        raise FishermixError(f"{folder} is not empty and holds no {kind}: name a new or empty folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FishermixError(f"the folder {folder} cannot be made ({error.strerror})") from error
    return folder


def _is_left_by_a_crash(path: Path) -> bool:
    """Whether this is what a save leaves behind that was killed before its `config.json` was written."""
    if path.is_dir():
        return re.fullmatch(f"[a-z]+-[0-9a-f]{{{NAME_DIGITS}}}", path.name) is not None
    tensors = fnmatch(path.name, "tensors-*.safetensors") or fnmatch(path.name, ".tensors.*.tmp")
    return tensors or fnmatch(path.name, f".{CONFIG}.*.tmp")


def sha256_of_file(path: str | os.PathLike) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_kind(folder: Path) -> str | None:
    """The kind of a saved folder, or None if it is not one."""
    try:
        head = json.loads((folder / CONFIG).read_text("utf8"))
    except (OSError, ValueError):
        return None
    return head.get("kind") if isinstance(head, dict) and head.get("format") == FORMAT else None


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
    if not isinstance(name, str) or Path(name).name != name:
        raise FishermixError(f"{Path(folder) / CONFIG} names no tensor file: the file is damaged")
    path = Path(folder) / name
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
