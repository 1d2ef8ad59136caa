"""A small transformer that encodes sentences: an ONNX graph and its tokenizer, run by onnxruntime.

The vector of a sentence is the mean of its token vectors, scaled to unit length (Reimers and Gurevych,
Sentence-BERT, EMNLP 2019). A graph with the output `text_embeds`, such as the text side of CLIP, gives the
vector itself. It knows the order of the words and, by word pieces, words that no vocabulary has; a Fisher
vector knows neither. `SentenceVectors` puts both side by side.
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
from fishermix.rows import map_in_threads
from fishermix.saved import explain_damage, sha256_of_file

from fishermix_photos.disk import data_folder
from fishermix_photos.model.network import open_session

DEFAULT_TRANSFORMER = "all-MiniLM-L6-v2"
SHIPPED_TRANSFORMERS = Path(__file__).parents[1] / "pretrained"
GRAPH, TOKENIZER = "model.onnx", "tokenizer.json"
MOST_TOKENS = 128  # of a sentence; what follows is cut off
MOST_TOKENS_OF_CLIP = 77  # unless its tokenizer.json says otherwise
LONGEST_PADDING = 10_000  # tokens; billions would use up the memory
SHORTEST_VECTOR = 1e-12
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
POOLED = "text_embeds"  # the output of a graph that gives one vector for the sentence, not one per token


def added_transformers() -> Path:
    """The folder of the transformers that the user added, one folder per transformer."""
    return data_folder() / "transformers"


class _Session(NamedTuple):
    """An open graph, those of `INPUTS` that it has, its output, and its tokenizer.

    width : of the output; a name or None if it does not say
    """

    graph: Any
    inputs: list[str]
    output: str
    width: int | str | None
    tokenizer: Any


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
    Radford et al. (ICML 2021), Learning transferable visual models from natural language supervision.

    Examples
    --------
    >>> SentenceTransformer.find("all-MiniLM-L6-v2").encode(["two dogs"]).shape
    (1, 384)
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        for name in (GRAPH, TOKENIZER):
            if not (self.folder / name).is_file():
                raise FishermixError(
                    f"{self.folder} is not a sentence transformer: {name} is missing.", code="not_found"
                )

    @classmethod
    def find(cls, name: str | os.PathLike) -> SentenceTransformer:
        """Find a transformer by the name of a shipped or added one, or by its folder."""
        is_plain = Path(name).name == str(name)
        if is_plain and (SHIPPED_TRANSFORMERS / name / GRAPH).is_file():
            return cls(SHIPPED_TRANSFORMERS / name)
        added = added_transformers()
        for folder in (*([added / name] if is_plain else []), Path(name)):
            if (folder / GRAPH).is_file():
                return cls(folder)
        raise FishermixError(
            f"There is no sentence transformer '{name}'. Use {DEFAULT_TRANSFORMER}, or a folder with {GRAPH} "
            f"and {TOKENIZER}; folders in {added} are found by their names.",
            code="not_found",
        )

    @cached_property
    def key(self) -> str:
        """Identifies graph and tokenizer: vectors with the same key are comparable."""
        digests = [sha256_of_file(self.folder / name) for name in (GRAPH, TOKENIZER)]
        return hashlib.sha256(" ".join(digests).encode()).hexdigest()

    @cached_property
    def n_features(self) -> int:
        width = self._session.width
        return width if isinstance(width, int) else len(self._run("a"))

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """Unit vectors (n, n_features) of sentences.

        Each sentence runs alone, several at a time in threads: an 8-bit graph scales its activations by the
        largest of a batch, and a sentence's vector must not depend on the sentences next to it.
        """
        out = np.zeros((len(sentences), self.n_features), np.float32)
        for row, vector in enumerate(map_in_threads(self._run, sentences)):
            out[row] = vector
        return out

    def knows_word(self, word: str) -> bool:
        """Whether the tokenizer has a word as one piece."""
        return len(self._session.tokenizer.encode(word, add_special_tokens=False).ids) == 1

    def _run(self, sentence: str) -> np.ndarray:
        """The unit vector (n_features,) of a sentence; bytes of the command line that are no text are read as
        question marks.
        """
        graph, inputs, output, _, tokenizer = self._session
        try:
            tokens = tokenizer.encode(sentence.encode("utf8", "replace").decode("utf8"))
            ids, mask = np.array([tokens.ids], np.int64), np.array([tokens.attention_mask], np.int64)
            given = dict(zip(INPUTS, (ids, mask, 0 * ids)))
            (vectors,) = graph.run([output], {name: given[name] for name in inputs})
            if output == POOLED:
                vector = vectors[0].astype(np.float32, copy=False)
            else:
                vector = vectors[0, : mask.sum()].mean(axis=0, dtype=np.float32)
            return vector / max(float(np.linalg.norm(vector)), SHORTEST_VECTOR)
        except Exception as error:  # onnxruntime and tokenizers raise their own classes
            raise FishermixError(
                f"{self.folder} cannot encode a sentence: {error}", code="wrong_network"
            ) from error

    @cached_property
    def _session(self) -> _Session:
        from tokenizers import Tokenizer

        with explain_damage(self.folder / GRAPH):
            session = open_session(self.folder / GRAPH)
            inputs = {value.name: value.shape for value in session.get_inputs()}
            outputs = {value.name: value.shape for value in session.get_outputs()}
        with explain_damage(self.folder / TOKENIZER):
            tokenizer = Tokenizer.from_file(str(self.folder / TOKENIZER))
        if unknown := set(inputs).difference(INPUTS):
            raise FishermixError(
                f"{self.folder / GRAPH} has the unknown inputs {', '.join(sorted(unknown))}.",
                code="wrong_network",
            )
        if not outputs or INPUTS[0] not in inputs:
            raise FishermixError(
                f"{self.folder / GRAPH} has no output, or no input {INPUTS[0]}.", code="wrong_network"
            )
        output = POOLED if POOLED in outputs else next(iter(outputs))
        width, length = (shape[-1] if shape else None for shape in (outputs[output], inputs[INPUTS[0]]))
        self._set_lengths(tokenizer, output == POOLED, length)
        return _Session(graph=session, inputs=list(inputs), output=output, width=width, tokenizer=tokenizer)

    def _set_lengths(self, tokenizer: Any, is_pooled: bool, length: int | str | None) -> None:
        """Cut and pad for a graph that takes `length` tokens, or any number if it is not a number."""
        padding = tokenizer.padding or {}
        most = MOST_TOKENS
        if is_pooled:
            most = (tokenizer.truncation or {}).get("max_length", MOST_TOKENS_OF_CLIP)
            length = length if isinstance(length, int) else padding.get("length")
        tokenizer.no_padding()
        if isinstance(length, int):
            if not 1 <= length <= LONGEST_PADDING:
                raise FishermixError(
                    f"{self.folder} expects {length} tokens per sentence, which cannot be.",
                    code="wrong_network",
                )
            tokenizer.enable_padding(**(padding | {"length": length, "pad_to_multiple_of": None}))
            most = min(most, length)
        tokenizer.enable_truncation(most)

    def __reduce__(self):
        return type(self), (self.folder,)  # without the open session
