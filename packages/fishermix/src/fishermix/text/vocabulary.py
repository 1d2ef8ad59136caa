"""`Vocabulary`: words in tables that can be memory-mapped, so that opening 400,000 of them takes no time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, overload

import numpy as np

from fishermix.errors import FishermixError

VOCABULARY_TENSORS = {
    "words": "uint8",
    "word_offsets": "int64",
    "word_hashes": "uint64",
    "word_order": "int64",
}


class Vocabulary(Sequence[str]):
    """n different words: one blob of bytes and a sorted table of hashes.

    blob (bytes,) uint8: the words in UTF-8, one after the other; offsets (n + 1,) int64: where each begins.
    hashes (n,) uint64: the sorted hashes of the words; order (n,) int64: the word each of them belongs to.

    Opening decodes and hashes nothing, so all four arrays may be memory-mapped.
    """

    def __init__(self, blob: np.ndarray, offsets: np.ndarray, hashes: np.ndarray, order: np.ndarray):
        n = len(hashes)
        fits = len(offsets) == n + 1 and len(order) == n and offsets[0] == 0 and offsets[-1] == len(blob)
        if not fits:
            raise FishermixError("The vocabulary is damaged: its tables do not fit together.", code="damaged")
        # Plain views of the maps: a slice of a np.memmap takes as long as a whole lookup.
        self._blob = np.asarray(blob)
        self._offsets = np.asarray(offsets)
        self._hashes = np.asarray(hashes)
        self._order = np.asarray(order)

    @classmethod
    def from_words(cls, words: Iterable[str]) -> Vocabulary:
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
                raise FishermixError(f"The word '{word.decode()}' occurs twice.", code="repeated")
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets, hashes, order)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Vocabulary:
        for name, dtype in VOCABULARY_TENSORS.items():
            if name not in tensors or tensors[name].ndim != 1 or tensors[name].dtype != dtype:
                raise FishermixError(
                    f"The vocabulary is damaged: the tensor '{name}' is missing or invalid.", code="damaged"
                )
        found = cls(*(tensors[name] for name in VOCABULARY_TENSORS))
        checked_words = 8 if len(found) else 0
        rows = np.linspace(0, len(found) - 1, checked_words).astype(int).tolist()
        if found.rows([found[row] for row in rows]) != rows:
            raise FishermixError(
                "The vocabulary is damaged: words are not found where its table says.", code="damaged"
            )
        return found

    def to_tensors(self) -> dict[str, np.ndarray]:
        return dict(zip(VOCABULARY_TENSORS, (self._blob, self._offsets, self._hashes, self._order)))

    def __len__(self) -> int:
        return len(self._hashes)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} words")
        row %= len(self)
        try:
            return self._read(row).decode()
        except UnicodeDecodeError as error:
            raise FishermixError(
                f"The vocabulary is damaged: word {row} is not UTF-8.", code="damaged"
            ) from error

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.rows([word])[0] >= 0

    def rows(self, words: Iterable[str]) -> list[int]:
        """The row of each word, -1 for a word out of vocabulary."""
        rows = []
        encoded = [word.encode(errors="replace") for word in words]
        hashes = [_hash(word) for word in encoded]
        places = self._hashes.searchsorted(np.array(hashes, np.uint64)).tolist()
        for word, hashed, at in zip(encoded, hashes, places):
            found = -1
            while found < 0 and at < len(self._hashes) and int(self._hashes[at]) == hashed:
                row = int(self._order[at])
                if 0 <= row < len(self._hashes) and self._read(row) == word:
                    found = row
                at += 1
            rows.append(found)
        return rows

    def _read(self, row: int) -> bytes:
        return self._blob[self._offsets[row] : self._offsets[row + 1]].tobytes()


def _hash(encoded: bytes) -> int:
    # Written to disk, so it has to be the same in every process: Python's own hash() is salted.
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "little")
