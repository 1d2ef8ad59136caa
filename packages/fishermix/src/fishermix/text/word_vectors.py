"""Word vectors: a vocabulary and one vector per word, read from the usual files or a memory-mapped folder."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from fishermix.errors import FishermixError
from fishermix.saved import Count, FolderKind, Struct, load_folder, save_folder
from fishermix.text.vocabulary import Vocabulary
from fishermix.text.word_files import read_vectors

VECTORS_AT_ONCE = 65_536  # of memory-mapped vectors that are compared with a query in one go
SMALLEST_LENGTH = 1e-12  # divides vectors shorter than this: zeros stay zeros


class VectorsConfig(Struct):
    """`config.json` of a folder of word vectors."""

    words: Count
    dimension: Count
    dtype: Literal["float32", "float16"]


VECTORS_KIND = FolderKind("word vectors", 1, VectorsConfig)


class WordVectors:
    """n words and their vectors.

    Parameters
    ----------
    words : sequence of str
        n different words. Or gensim's `KeyedVectors`, without `vectors`.
    vectors : array of shape (n, D)
        Their vectors, float32 or float16; may be memory-mapped.

    See Also
    --------
    fishermix.SentenceEncoder : vectors of sentences.

    References
    ----------
    Mikolov et al. (NIPS 2013), Distributed Representations of Words and Phrases and their Compositionality;
    Pennington, Socher, Manning (EMNLP 2014), GloVe: Global Vectors for Word Representation.

    Examples
    --------
    >>> vectors = WordVectors(["dog", "cat", "car"], [[1, 0], [1, 0.5], [-1, 0]])
    >>> "dog" in vectors, vectors["cat"].tolist(), vectors.rows(["car", "boat"]).tolist()
    (True, [1.0, 0.5], [2, -1])
    >>> vectors[1].tolist(), list(vectors)  # the vector of a row; iterating gives the words
    ([1.0, 0.5], ['dog', 'cat', 'car'])
    >>> [word for word, cosine in vectors.most_similar("dog", n=2)]
    ['cat', 'car']
    """

    def __init__(self, words: Any, vectors: Any = None):
        if vectors is None:
            if not hasattr(words, "index_to_key"):
                raise FishermixError(
                    "Give words and their vectors, or gensim's KeyedVectors.", code="wrong_parameter"
                )
            words, vectors = words.index_to_key, words.vectors
        self.words: Vocabulary = words if isinstance(words, Vocabulary) else Vocabulary.from_words(words)
        self.vectors: np.ndarray = np.asanyarray(vectors)
        if self.vectors.dtype not in (np.float32, np.float16):
            self.vectors = self.vectors.astype(np.float32)
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.words):
            raise FishermixError(
                f"There are {len(self.words)} words, but the array of vectors has shape "
                f"{self.vectors.shape}.",
                code="wrong_shape",
            )
        if not isinstance(self.vectors, np.memmap):  # a mapped file was checked when it was written
            self._check_finite()

    def _check_finite(self) -> None:
        finite = np.isfinite(self.vectors).all(axis=1)
        if not finite.all():
            word = self.words[int(np.argmin(finite))]
            raise FishermixError(
                f"The vector of {word!r} has numbers that are not finite.", code="not_finite"
            )

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        limit: int | None = None,
        vocabulary: Collection[str] | None = None,
        dtype: Literal["float32", "float16"] = "float32",
        errors: Literal["raise", "skip"] = "raise",
    ) -> WordVectors:
        """Read word2vec binary or text, GloVe text, any of them gzipped, or a saved folder.

        A folder is only mapped: opening it takes no time and little memory, `dtype` stays as saved, and its
        hash is not compared.

        Parameters
        ----------
        path : path
            A file in the format of word2vec or GloVe, or a saved folder.
        limit : int, optional
            Read only this many words, from the first on.
        vocabulary : collection of str, optional
            Keep only these words.
        dtype : "float32" or "float16"
            The type of the vectors.
        errors : "raise" or "skip"
            What to do with words that are empty, repeated, not UTF-8, not finite or in a last line without a
            newline.
        """
        path = Path(path)
        if not path.is_dir():
            return cls(*read_vectors(path, limit=limit, vocabulary=vocabulary, dtype=dtype, errors=errors))
        found = cls._from_tensors(load_folder(path, VECTORS_KIND, mapped=True, verified=False).tensors)
        if limit is not None:
            found = found[:limit]
        if vocabulary is not None:
            rows = found.rows(vocabulary)
            found = found[np.unique(rows[rows >= 0])]
        return found

    def save(
        self, folder: str | os.PathLike[str], dtype: Literal["float32", "float16"] | None = None
    ) -> None:
        """Write a folder that `load` maps; "float16" halves its size and keeps about three digits."""
        with np.errstate(over="ignore"):
            vectors = self.vectors if dtype is None else self.vectors.astype(dtype, copy=False)
        if dtype == "float16" and not np.isfinite(vectors).all():
            raise FishermixError(
                "Some numbers are too large for float16. Save the vectors as float32.", code="not_finite"
            )
        config = VectorsConfig(len(self), self.dimension, str(vectors.dtype))  # type: ignore[arg-type]
        save_folder(folder, VECTORS_KIND, config, {**self._to_tensors(), "vectors": vectors})

    def _to_tensors(self) -> dict[str, np.ndarray]:
        """The arrays that hold everything, to store in another file."""
        return {**self.words.to_tensors(), "vectors": self.vectors}

    @classmethod
    def _from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> WordVectors:
        """The vectors whose `_to_tensors` a model stored."""
        if "vectors" not in tensors:
            raise FishermixError(
                "The word vectors are damaged: the tensor 'vectors' is missing.", code="damaged"
            )
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
    def __getitem__(self, key: slice | np.ndarray | list[int]) -> WordVectors: ...
    def __getitem__(self, key: Any) -> Any:
        """The float32 vector of a word or a row; for a slice or several rows, these as `WordVectors`."""
        if isinstance(key, str):
            if (row := self.words.rows([key])[0]) < 0:
                raise KeyError(key)
            return self.vectors[row].astype(np.float32)
        if isinstance(key, int | np.integer):
            return self.vectors[key].astype(np.float32)
        rows = np.arange(len(self))[key]
        return WordVectors([self.words[int(row)] for row in rows], self.vectors[key])

    def rows(self, words: Iterable[str]) -> np.ndarray:
        """The row of each word, -1 for a word out of vocabulary: (len(words),) int64."""
        return np.array(self.words.rows(words), np.int64)

    def most_similar(self, query: str | np.ndarray, n: int = 10) -> list[tuple[str, float]]:
        """The `n` words with the highest cosine to a word (other than itself) or to a vector (D,).

        Returns
        -------
        found : list of (str, float)
            Words and cosines, the highest first.
        """
        if isinstance(query, str):
            itself = self.words.rows([query])[0]
            if itself < 0:
                raise FishermixError(
                    f"'{query}' is not in the vocabulary of {len(self)} words.", code="unknown_word"
                )
            target = self[query]
        else:
            itself, target = -1, np.asarray(query, np.float32)
            if target.shape != (self.dimension,):
                raise FishermixError(
                    f"The query must be a word or a vector of {self.dimension} numbers; its shape is "
                    f"{target.shape}.",
                    code="wrong_shape",
                )
        cosines = np.empty(len(self), np.float32)
        target = target / max(float(np.linalg.norm(target)), SMALLEST_LENGTH)
        for start in range(0, len(self), VECTORS_AT_ONCE):
            block = self.vectors[start : start + VECTORS_AT_ONCE].astype(np.float32, copy=False)
            lengths = np.sqrt(np.einsum("ij,ij->i", block, block))
            cosines[start : start + VECTORS_AT_ONCE] = (block @ target) / np.maximum(lengths, SMALLEST_LENGTH)
        if itself >= 0:
            cosines[itself] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: max(0, min(n, len(self) - (itself >= 0)))]
        return [(self.words[int(row)], float(cosines[row])) for row in best]

    def __repr__(self) -> str:
        return f"WordVectors({len(self)} words, {self.dimension} dimensions, {self.vectors.dtype})"
