"""A small transformer that encodes sentences: an ONNX graph and its tokenizer, run by onnxruntime.

The vector of a sentence is the mean of its token vectors, scaled to unit length (Reimers and Gurevych,
Sentence-BERT, EMNLP 2019). It knows the order of the words and, by word pieces, words that no vocabulary has;
a Fisher vector knows neither. `SentenceVectors` puts both side by side.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fishermix.errors import FishermixError
from fishermix.runtime import available_threads
from fishermix.storage import explain_damage, sha256_of_file

from fishermix_photos.disk import data_folder
from fishermix_photos.vision.network import open_session

DEFAULT_TRANSFORMER = "all-MiniLM-L6-v2"
SHIPPED_TRANSFORMERS = Path(__file__).with_name("pretrained")
GRAPH, TOKENIZER = "model.onnx", "tokenizer.json"
MOST_TOKENS = 128  # of a sentence; what follows is cut off
SHORTEST_VECTOR = 1e-12
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class _Session(NamedTuple):
    """An open graph, those of `INPUTS` that it has, and the width of its output, if it says so."""

    graph: Any
    inputs: list[str]
    width: int | str | None


class SentenceTransformer:
    """Maps sentences to unit vectors (n, n_features) float32. Opened on first use; threads may share it.

    Parameters
    ----------
    folder : path
        Contains `model.onnx` and `tokenizer.json`.

    See Also
    --------
    fishermix.SentenceEncoder : puts its vectors next to Fisher vectors.

    References
    ----------
    Reimers, Gurevych (EMNLP 2019), Sentence-BERT: sentence embeddings using Siamese BERT-networks.

    Examples
    --------
    >>> SentenceTransformer.find("all-MiniLM-L6-v2").encode(["two dogs"]).shape
    (1, 384)
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        for name in (GRAPH, TOKENIZER):
            if not (self.folder / name).is_file():
                raise FishermixError(f"{self.folder} is not a sentence transformer: {name} is missing.")

    @classmethod
    def find(cls, name: str | os.PathLike) -> SentenceTransformer:
        """Find a transformer by the name of a shipped or added one, or by its folder.

        Parameters
        ----------
        name : str or path
            A name, or a folder.

        Returns
        -------
        transformer : SentenceTransformer
        """
        is_plain = Path(name).name == str(name)
        if is_plain and (SHIPPED_TRANSFORMERS / name / GRAPH).is_file():
            return cls(SHIPPED_TRANSFORMERS / name)
        added = data_folder() / "transformers"
        for folder in (*([added / name] if is_plain else []), Path(name)):
            if (folder / GRAPH).is_file():
                return cls(folder)
        raise FishermixError(
            f"There is no sentence transformer '{name}'. Use {DEFAULT_TRANSFORMER}, or a folder with {GRAPH} "
            f"and {TOKENIZER}; folders in {added} are found by their names."
        )

    @cached_property
    def key(self) -> str:
        """Identifies graph and tokenizer: vectors with the same key are comparable."""
        digests = [sha256_of_file(self.folder / name) for name in (GRAPH, TOKENIZER)]
        return hashlib.sha256(" ".join(digests).encode()).hexdigest()

    @cached_property
    def n_features(self) -> int:
        width = self._session.width
        return width if isinstance(width, int) else len(self._run([0]))

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """Unit vectors (n, n_features) of sentences.

        Each sentence runs alone, several at a time in threads: an 8-bit graph scales its activations by the
        largest of a batch, and a sentence's vector must not depend on the sentences next to it.

        Parameters
        ----------
        sentences : sequence of str
            The sentences.

        Returns
        -------
        vectors : ndarray of shape (n, n_features) float32
        """
        ids = self._tokenize([_replace_undecodable(sentence) for sentence in sentences])
        out = np.zeros((len(ids), self.n_features), np.float32)
        threads = min(available_threads(), len(ids)) if len(ids) > 1 else 1
        if threads <= 1:
            for row, tokens in enumerate(ids):
                out[row] = self._run(tokens)
            return out
        from concurrent.futures import ThreadPoolExecutor  # 10 ms that a search does not wait for

        with ThreadPoolExecutor(threads) as pool:
            for row, vector in enumerate(pool.map(self._run, ids)):
                out[row] = vector
        return out

    def _run(self, ids: list[int]) -> np.ndarray:
        """The unit vector (n_features,) of the tokens of one sentence."""
        tokens = np.array([ids], np.int64)
        given = dict(zip(INPUTS, (tokens, np.ones_like(tokens), 0 * tokens)))
        try:
            graph, inputs, _ = self._session
            vectors = graph.run(None, {name: given[name] for name in inputs})[0]
            mean = vectors[0].mean(axis=0, dtype=np.float32)
            return mean / max(float(np.linalg.norm(mean)), SHORTEST_VECTOR)
        except Exception as error:  # onnxruntime raises its own classes
            raise FishermixError(f"{self.folder / GRAPH} does not run on a sentence: {error}") from error

    @cached_property
    def _session(self) -> _Session:
        with explain_damage(self.folder / GRAPH):
            session = open_session(self.folder / GRAPH)
            inputs = [value.name for value in session.get_inputs()]
            shapes = [value.shape for value in session.get_outputs()]
            width = shapes[0][-1] if shapes and shapes[0] else None
        if not shapes:
            raise FishermixError(f"{self.folder / GRAPH} has no output.")
        if unknown := set(inputs).difference(INPUTS):
            raise FishermixError(
                f"{self.folder / GRAPH} has the unknown inputs {', '.join(sorted(unknown))}."
            )
        return _Session(session, inputs, width)

    def _tokenize(self, sentences: list[str]) -> list[list[int]]:
        """The numbers of the tokens of each sentence."""
        with explain_damage(self.folder / TOKENIZER):
            return [encoded.ids for encoded in self._tokenizer.encode_batch(sentences)]

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.folder / TOKENIZER))
        tokenizer.no_padding()
        tokenizer.enable_truncation(MOST_TOKENS)
        return tokenizer

    def __reduce__(self):
        return type(self), (self.folder,)  # without the open session


def _replace_undecodable(sentence: str) -> str:
    """The sentence with question marks for bytes of the command line that are no text."""
    return sentence.encode("utf8", "replace").decode("utf8")
