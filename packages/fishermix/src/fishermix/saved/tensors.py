"""Tensor files (safetensors): written to disk, checked, read or mapped into memory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from fishermix.errors import FishermixError, explain_damage


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a tensor file, flushed to disk."""
    try:
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path)
    except SafetensorError as error:
        if found := re.search(r"os error (\d+)", str(error)):  # a full disk, for example
            number = int(found[1])
            raise OSError(number, os.strerror(number), os.fspath(path)) from error
        raise
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def check_tensors(path: Path, fits_in_memory: bool) -> None:
    """Compare the size of a tensor file with its header and with the machine's memory, before it is read."""
    with explain_damage(path), safe_open(path, framework="numpy"):
        pass
    if fits_in_memory and hasattr(os, "sysconf"):  # Windows has none
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        size = path.stat().st_size
        if size > memory:
            raise FishermixError(
                f"{path} has {size / 2**30:.0f} GiB, but this machine has {memory / 2**30:.0f} GiB of "
                "memory.",
                code="too_little_memory",
            )


def load_tensors(path: Path, mapped: bool) -> dict[str, np.ndarray]:
    """The tensors of a checked file: read, or mapped into memory."""
    if mapped:
        return _map_tensors(path)
    with explain_damage(path):
        return load_file(path)


def _map_tensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors as memory maps; the package safetensors would copy them into memory."""
    numpy_type = {
        "F16": "<f2",
        "F32": "<f4",
        "F64": "<f8",
        "I8": "i1",
        "I64": "<i8",
        "U8": "u1",
        "U64": "<u8",
    }
    with explain_damage(path):
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        dtypes = {name: numpy_type[entry["dtype"]] for name, entry in header.items()}
    tensors = {}
    for name, dtype in dtypes.items():
        shape = tuple(header[name]["shape"])
        offset = 8 + size + header[name]["data_offsets"][0]
        is_empty = 0 in shape  # which no map can be
        mapped = None if is_empty else np.memmap(path, dtype, "r", offset=offset, shape=shape)
        tensors[name] = np.zeros(shape, dtype) if mapped is None else mapped
    return tensors


def require_tensor(
    tensors: Mapping[str, np.ndarray],
    name: str,
    shape: tuple[int | None, ...],
    where: str | os.PathLike,
    kinds: str = "f",
) -> np.ndarray:
    """`tensors[name]` if it has this shape (None matches any length), a type of `kinds` and finite values."""
    if name not in tensors:
        raise FishermixError(f"{where} lacks the tensor '{name}'", code="damaged")
    value = tensors[name]
    if value.ndim != len(shape) or any(want not in (None, have) for want, have in zip(shape, value.shape)):
        raise FishermixError(
            f"{where}: tensor '{name}' has shape {value.shape}, expected {shape}", code="damaged"
        )
    if value.dtype.kind not in kinds:
        raise FishermixError(f"{where}: tensor '{name}' holds {value.dtype} numbers", code="damaged")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise FishermixError(f"{where}: tensor '{name}' holds NaN or infinity", code="damaged")
    return value


def require_tensors(
    tensors: Mapping[str, np.ndarray], shapes: Mapping[str, str], where: str | os.PathLike
) -> list[np.ndarray]:
    """The tensors that `shapes` names, checked as by `require_tensor`.

    A shape such as "k d" has a name or a number for each length. The same name is the same length in all
    tensors. The first word "int" is for integers: "int k d".
    """
    lengths: dict[str, int] = {}
    found = []
    for name, shape in shapes.items():
        kinds = "iu" if shape.startswith("int ") else "f"
        words = shape.removeprefix("int ").split()
        wanted = tuple([int(word) if word.isdecimal() else lengths.get(word) for word in words])
        found.append(require_tensor(tensors, name, wanted, where, kinds))
        lengths.update(zip(words, found[-1].shape))
    return found
