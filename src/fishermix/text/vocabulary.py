"""A list of words that millions of entries open in no time: one blob of bytes, and a sorted table of hashes.

Nothing is decoded or hashed when a list is opened, so all four arrays may be memory-mapped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import overload

import numpy as np

from fishermix.errors import FishermixError


class Vocabulary(Sequence[str]):
    """n different words.

    blob (bytes,) uint8: the words in UTF-8, one after the other; offsets (n + 1,) int64: where each begins.
    hashes (n,) uint64: the sorted hashes of the words; order (n,) int64: the word each of them belongs to.
    """

    def __init__(self, blob: np.ndarray, offsets: np.ndarray, hashes: np.ndarray, order: np.ndarray):
        n = len(hashes)
        fits = len(offsets) == n + 1 and len(order) == n and offsets[0] == 0 and offsets[-1] == len(blob)
        if not fits:
            raise FishermixError("the word list is damaged: its tables do not fit together")
        # Plain views of the maps: a slice of a np.memmap takes as long as a whole lookup.
        self._blob, self._offsets, self._hashes, self._order = map(np.asarray, (blob, offsets, hashes, order))

    @classmethod
    def of(cls, words: Iterable[str]) -> Vocabulary:
        encoded = [word.encode() for word in words]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(word) for word in encoded], out=offsets[1:])
        hashes = np.array([_hash(word) for word in encoded], np.uint64)
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        for left in np.flatnonzero(hashes[1:] == hashes[:-1]):
            run = order[hashes == hashes[left]]
            [(word, times)] = Counter(encoded[row] for row in run).most_common(1)
            if times > 1:
                raise FishermixError(f"the word '{word.decode()}' is given twice")
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets, hashes, order)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Vocabulary:
        names = ("words", "word_offsets", "word_hashes", "word_order")
        for name, kind in zip(names, ("uint8", "int64", "uint64", "int64")):
            if name not in tensors or tensors[name].ndim != 1 or tensors[name].dtype != kind:
                raise FishermixError(f"the word list is damaged: no usable tensor '{name}'")
        return cls(*(tensors[name] for name in names))

    def to_tensors(self) -> dict[str, np.ndarray]:
        return {
            "words": self._blob,
            "word_offsets": self._offsets,
            "word_hashes": self._hashes,
            "word_order": self._order,
        }

    def __len__(self) -> int:
        return len(self._hashes)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row):
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} words")
        row %= len(self)
        try:
            return self._bytes(row).decode()
        except UnicodeDecodeError as error:
            raise FishermixError(f"the word list is damaged: word {row} is not UTF-8") from error

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.row(word) >= 0

    def row(self, word: str) -> int:
        """The row of a word, -1 if it is not in the list."""
        encoded = word.encode(errors="replace")
        hashed = _hash(encoded)
        at = int(self._hashes.searchsorted(np.uint64(hashed)))
        while at < len(self._hashes) and int(self._hashes[at]) == hashed:
            row = int(self._order[at])
            if 0 <= row < len(self) and self._bytes(row) == encoded:
                return row
            at += 1
        return -1

    def _bytes(self, row: int) -> bytes:
        return self._blob[self._offsets[row] : self._offsets[row + 1]].tobytes()


def _hash(encoded: bytes) -> int:
    # Written to disk, so it has to be the same in every process: Python's own hash() is salted.
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "little")
