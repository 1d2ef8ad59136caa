"""The points of a large index once more, in 8 bits: a search reads a quarter of the bytes and misses nothing.

A block holds the points x of 65,536 rows as integers c, one scale s per coordinate: x = s c / 64 + rounding.
A query q is rounded to integers up to 127 in the same way. With x' = x / s, q' = s q and the rounded values
c' = c / 64 and k',

    |q x - k' c'| <= |k'| |x' - c'| + |q' - k'| |x'|.

The largest lengths of x' - c' and x' of each block are stored, so the margin of a block is known. Rows that
are within it of the best rows are scored with the points themselves: the answer is that of a full search.

The file is a cache next to the index, written after an update. A search without it reads all points.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fishermix.disk import create_private_file
from fishermix.threads import available_threads

ROWS = 65_536  # of a block; rows after the last whole block are searched without codes
ROWS_IN_CACHE = 512
MOST_DIMENSIONS = 65_536  # the sum of as many products fits into 32 bits
# Processors without VNNI add two products in 16 bits: 2 * 64 * (127 + 127) is the most that fits.
LARGEST_POINT, LARGEST_QUERY = 64, 127
OFFSET = 127  # makes the integers of a query positive
LARGEST = 1e18  # the lengths and scales of points are far from it; products of two stay in float32
ROUNDING = 2.0**-20  # of the float32 numbers here, as a share of |q'| |x'|


class PointCodes:
    """The blocks of one file, memory-mapped."""

    def __init__(self, blocks: np.ndarray):
        self.blocks, self.n_rows = blocks, len(blocks) * ROWS

    def score(self, query: np.ndarray) -> Iterator[tuple[int, np.ndarray, float]]:
        """For each block: its first row, the scores (65536,) of its rows with a query (d,), their margin."""
        for number, block in enumerate(self.blocks):
            scaled = query.astype(np.float64) * block["scale"]
            unit = (np.abs(scaled).max() / LARGEST_QUERY) or 1.0
            rounded = np.rint(scaled / unit)
            given = {"q": (rounded + OFFSET).astype(np.uint8)[None], "x": block["codes"]}
            (products,) = _product().run(None, given)[0]
            scores = (products - block["offsets"]).astype(np.float32) * np.float32(unit / LARGEST_POINT)
            radius, error = float(block["radius"]), float(block["error"])
            margin = np.linalg.norm(rounded * unit) * error + np.linalg.norm(scaled - rounded * unit) * radius
            margin += ROUNDING * np.linalg.norm(scaled) * (radius + error)
            yield number * ROWS, scores, float(margin)

    def match(self, vectors: np.ndarray) -> bool:
        """Whether these are the codes of the first of `vectors` (N, d)."""
        return all(
            _encode(vectors[start : start + ROWS]).tobytes() == block.tobytes()
            for start, block in zip(range(0, self.n_rows, ROWS), self.blocks)
        )


def build_codes(folder: Path, generation: int, vectors: np.ndarray) -> None:
    """Write the codes of all whole blocks of `vectors` (N, d) unless a sound file has them; all or none."""
    n_blocks, dimension = len(vectors) // ROWS, vectors.shape[1]
    file = folder / f"codes-{generation}-{n_blocks}.i8"
    if not n_blocks or dimension > MOST_DIMENSIONS or not find_spec("onnxruntime"):
        return
    known = open_codes(folder, generation, dimension, len(vectors))
    if known and known.n_rows == n_blocks * ROWS:
        return
    temporary = file.with_suffix(".tmp")
    try:
        temporary.unlink(missing_ok=True)  # of a writer that was killed
        create_private_file(temporary)
        with open(temporary, "wb") as out:
            for start in range(0, n_blocks * ROWS, ROWS):
                out.write(_encode(vectors[start : start + ROWS]).tobytes())
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, file)
    except OSError:  # such as a full disk: the index is complete without this file
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        return
    for other in folder.glob(f"codes-{generation}-*.i8"):
        if other != file:
            with suppress(PermissionError):  # Windows: a search has it open
                other.unlink(missing_ok=True)


def open_codes(folder: Path, generation: int, dimension: int, n_rows: int) -> PointCodes | None:
    """The codes of the first of `n_rows` points; None if there are none or they are damaged."""
    for file in folder.glob(f"codes-{generation}-*.i8"):
        n_blocks, size = file.stem.split("-")[2], _block_type(dimension).itemsize
        if not n_blocks.isdigit() or not 0 < int(n_blocks) <= n_rows // ROWS or not find_spec("onnxruntime"):
            continue
        with suppress(OSError):  # another process has just replaced it
            if file.stat().st_size == int(n_blocks) * size:
                blocks = np.asarray(np.memmap(file, _block_type(dimension), "r"))
                numbers = [blocks[name] for name in ("scale", "radius", "error")]
                is_sane = all(some.min() >= 0 and some.max() < LARGEST for some in numbers)  # not NaN
                return PointCodes(blocks) if is_sane else None
    return None


def _block_type(dimension: int) -> np.dtype:
    return np.dtype(
        [
            ("scale", "<f4", dimension),
            ("radius", "<f4"),  # the largest length of x'
            ("error", "<f4"),  # the largest length of x' - c'
            ("offsets", "<i4", ROWS),  # what OFFSET adds to the products
            ("codes", "i1", (dimension, ROWS)),
        ]
    )


def _encode(points: np.ndarray) -> np.ndarray:
    """The block () of points (65536, d). Points that are not finite have no codes: their radius is NaN."""
    block = np.zeros((), _block_type(points.shape[1]))
    block["scale"] = np.maximum(points.max(axis=0), -points.min(axis=0))
    scale = np.where(block["scale"] > 0, block["scale"], 1)
    squares = np.zeros(2)
    with np.errstate(invalid="ignore"):
        for start in range(0, len(points), ROWS_IN_CACHE):
            part = slice(start, start + ROWS_IN_CACHE)
            inner = points[part] / scale
            codes = np.rint(LARGEST_POINT * inner)
            block["codes"][:, part] = codes.T
            block["offsets"][part] = OFFSET * codes.sum(axis=1)
            errors = inner - codes / LARGEST_POINT
            longest = [np.einsum("nd,nd->n", rows, rows).max() for rows in (inner, errors)]
            squares = np.maximum(squares, longest)
    block["radius"], block["error"] = (1 + 1e-5) * np.sqrt(squares)  # above what float32 rounds
    return block


@cache
def _product() -> Any:
    """onnxruntime's product of integers: q (1, d) of uint8, x (d, n) of int8."""
    from fishermix.onnx_session import import_onnxruntime

    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = available_threads(), 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(
        _product_graph(), options, providers=["CPUExecutionProvider"], enable_fallback=0
    )


def _product_graph() -> bytes:
    """MatMulInteger as an ONNX file, in the encoding of protobuf; the numbers are those of onnx.proto."""

    def field(number: int, content: bytes | int) -> bytes:
        if isinstance(content, int):
            return bytes([number << 3, content])
        return bytes([number << 3 | 2, len(content)]) + content  # at most 127 bytes

    def value(name: bytes, kind: int, *shape: bytes) -> bytes:
        sizes = b"".join(field(1, field(2, size)) for size in shape)
        return field(1, name) + field(2, field(1, field(1, kind) + field(2, sizes)))

    uint8, int8, int32 = 2, 3, 6
    node = field(1, b"q") + field(1, b"x") + field(2, b"y") + field(4, b"MatMulInteger")
    given = field(11, value(b"q", uint8, b"m", b"d")) + field(11, value(b"x", int8, b"d", b"n"))
    graph = field(1, node) + field(2, b"g") + given + field(12, value(b"y", int32, b"m", b"n"))
    ir_version, opset = 8, field(2, 17)
    return field(1, ir_version) + field(7, graph) + field(8, opset)
