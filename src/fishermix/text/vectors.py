"""Word vectors: read from the usual files, kept in a memory-mapped folder, looked up by word."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, overload

import numpy as np
from safetensors import SafetensorError, safe_open

from fishermix.errors import FishermixError
from fishermix.storage import CONFIG, load_config, save_folder, sha256_of_file, tensor_path
from fishermix.text.vocabulary import Vocabulary
from fishermix.text.word_vector_files import MAX_DECOMPRESSED_BYTES, read_vectors

KIND, VERSION = "word vectors", 1
DTYPES = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "U64": "<u8", "U8": "u1"}


class WordVectors:
    """n words and their vectors.

    words: a sequence of n different words. vectors: (n, D) float32 or float16, perhaps memory-mapped.

    >>> vectors = WordVectors(["dog", "cat", "car"], [[1, 0], [1, 0.5], [-1, 0]])
    >>> "dog" in vectors, vectors["cat"].tolist(), vectors.rows(["car", "boat"]).tolist()
    (True, [1.0, 0.5], [2, -1])
    >>> vectors[1].tolist(), list(vectors)  # a row's vector; iterated over, it gives the words
    ([1.0, 0.5], ['dog', 'cat', 'car'])
    >>> [word for word, cosine in vectors.most_similar("dog", n=2)]
    ['cat', 'car']
    """

    def __init__(self, words: Iterable[str], vectors):
        self.words: Sequence[str] = words if isinstance(words, Vocabulary) else Vocabulary.of(words)
        self.vectors: np.ndarray = np.asanyarray(vectors)
        if self.vectors.dtype not in (np.float32, np.float16):
            self.vectors = self.vectors.astype(np.float32)
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.words):
            shape = self.vectors.shape
            raise FishermixError(f"{len(self.words)} words need as many vectors, got an array of {shape}")

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        *,
        limit: int | None = None,
        vocabulary: Collection[str] | None = None,
        dtype: Literal["float32", "float16"] = "float32",
        errors: Literal["raise", "skip"] = "raise",
        max_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> WordVectors:
        """Read word2vec binary or text, GloVe text, gzip of each (see `formats.py`), or a saved folder.

        A folder is only mapped: opening takes no time and little memory, `dtype` stays as saved, and its hash
        is not compared (`verify` does).
        limit: the first `limit` words only. vocabulary: only these words. errors="skip" leaves out words
        that are empty, repeated, not UTF-8, not finite or in a last line without a newline, instead of
        stopping. max_bytes: decompress no more than this.
        """
        path = Path(path)
        if not path.is_dir():
            words, vectors = read_vectors(
                path, limit=limit, vocabulary=vocabulary, dtype=dtype, errors=errors, max_bytes=max_bytes
            )
            return cls(words, vectors)
        found = cls.from_tensors(_mapped(tensor_path(path, load_config(path, KIND, VERSION))))
        if limit is not None:
            found = found[:limit]
        if vocabulary is not None:
            rows = found.rows(vocabulary)
            found = found[np.unique(rows[rows >= 0])]
        return found

    def save(self, folder: str | os.PathLike, dtype: Literal["float32", "float16"] | None = None) -> None:
        """Write a folder that `load` opens at once; float16 halves it and keeps about three digits."""
        with np.errstate(over="ignore"):
            vectors = self.vectors if dtype is None else self.vectors.astype(dtype, copy=False)
        if dtype == "float16" and not np.isfinite(vectors).all():
            raise FishermixError("some numbers are too large for float16: save as float32")
        config = {"words": len(self), "dimension": self.dimension, "dtype": str(vectors.dtype)}
        save_folder(folder, KIND, VERSION, config, {**self.to_tensors(), "vectors": vectors})

    @staticmethod
    def verify(folder: str | os.PathLike) -> None:
        """Read a saved folder in full and compare its hash."""
        config = load_config(folder, KIND, VERSION)
        path = tensor_path(folder, config)
        if sha256_of_file(path) != config.get("sha256"):
            raise FishermixError(f"{path} is damaged: its content does not match the hash in {CONFIG}")

    def to_tensors(self) -> dict[str, np.ndarray]:
        """The arrays that hold everything, for a file of one's own."""
        words = self.words if isinstance(self.words, Vocabulary) else Vocabulary.of(self.words)
        return {**words.to_tensors(), "vectors": self.vectors}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> WordVectors:
        if "vectors" not in tensors:
            raise FishermixError("these word vectors are damaged: no tensor 'vectors'")
        return cls(Vocabulary.from_tensors(tensors), tensors["vectors"])

    @property
    def dimension(self) -> int:
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.words

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    @overload
    def __getitem__(self, key: str | int | np.integer) -> np.ndarray: ...
    @overload
    def __getitem__(self, key: slice | np.ndarray | list[int] | list[str]) -> WordVectors: ...
    def __getitem__(self, key):
        """The float32 vector of a word or a row; by a slice, rows, a mask or a list of words, that part as
        `WordVectors`."""
        if isinstance(key, str):
            row = self.row(key)
            if row < 0:
                raise KeyError(key)
            return self.vectors[row].astype(np.float32)
        if isinstance(key, int | np.integer):
            if not -len(self) <= key < len(self):
                raise IndexError(f"row {key} of {len(self)} words")
            return self.vectors[key].astype(np.float32)
        if isinstance(key, slice):
            return WordVectors(self.words[key], self.vectors[key])
        if not hasattr(key, "__len__"):
            raise FishermixError(f"{key!r} is neither a word nor a row nor several of these")
        if len(key) and isinstance(key[0], str):
            missing = [word for word in key if word not in self]
            if missing:
                raise KeyError(missing[0])
            key = self.rows(key)
        rows = np.asarray(key)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        return WordVectors([self.words[int(row)] for row in rows], self.vectors[rows])

    def row(self, word: str) -> int:
        """The row of a word, -1 if it is unknown."""
        return self.words.row(word) if isinstance(self.words, Vocabulary) else -1

    def rows(self, words: Iterable[str]) -> np.ndarray:
        """The row of each word, -1 where it is unknown: (len(words),) int64."""
        return np.array([self.row(word) for word in words], np.int64)

    def most_similar(self, query: str | np.ndarray, n: int = 10) -> list[tuple[str, float]]:
        """The `n` words of the highest cosine to a word (itself left out) or to a vector (D,)."""
        if isinstance(query, str):
            left_out = self.row(query)
            if left_out < 0:
                raise FishermixError(f"'{query}' is not among the {len(self)} words")
            target = self[query]
        else:
            left_out, target = -1, np.asarray(query, np.float32)
            if target.shape != (self.dimension,):
                raise FishermixError(f"a vector of {self.dimension} numbers is needed, got {target.shape}")
        cosines = np.empty(len(self), np.float32)
        target = target / max(float(np.linalg.norm(target)), 1e-12)
        for start in range(0, len(self), 65536):
            block = self.vectors[start : start + 65536].astype(np.float32, copy=False)
            lengths = np.sqrt(np.einsum("ij,ij->i", block, block))
            cosines[start : start + 65536] = (block @ target) / np.maximum(lengths, 1e-12)
        if left_out >= 0:
            cosines[left_out] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: max(0, min(n, len(self) - (left_out >= 0)))]
        return [(self.words[int(row)], float(cosines[row])) for row in best]

    def __repr__(self) -> str:
        return f"WordVectors({len(self)} words, {self.dimension} dimensions, {self.vectors.dtype})"


def _mapped(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file as memory maps; the library itself would copy them into memory."""
    try:
        with safe_open(path, framework="numpy"):  # checks the header, the offsets and the file's size
            pass
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
    except (SafetensorError, OSError, ValueError) as error:
        raise FishermixError(f"{path} cannot be read ({error}): the file is damaged") from error
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in DTYPES:
            raise FishermixError(f"{path}: tensor '{name}' is of the unknown type {entry['dtype']}")
        shape, start = tuple(entry["shape"]), 8 + size + entry["data_offsets"][0]
        if 0 in shape:
            tensors[name] = np.zeros(shape, DTYPES[entry["dtype"]])
        else:
            tensors[name] = np.memmap(path, DTYPES[entry["dtype"]], "r", offset=start, shape=shape)
    return tensors
