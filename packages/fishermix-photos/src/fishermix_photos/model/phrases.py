"""What captions say where they use a phrase: people type two words, captions have ten.

The embedding x of "beach" is that of a caption with a single word. But captions about beaches speak of sand,
waves and swimmers, too, so photos of beaches are nearer to

    x + w d

where the unit vector d has the direction from the mean of all training captions to the mean of those that
contain the phrase, and w is a weight. That is query expansion (Rocchio 1971) by captions in place of results.
A query is completed if it is such a phrase, but for words such as "a" at its ends. A query of three words or
fewer that is none, such as "red kayak", gets the sum of the directions of its words. Longer queries stay as
they are: they say enough.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from fishermix.errors import FishermixError
from fishermix.joint.vectors import from_bytes, to_bytes, unit_rows
from fishermix.saved import FolderKind, Struct, Text, load_folder, save_folder
from fishermix.text.tokens import NUMBER_WORDS, STOP_WORDS, tokenize
from msgspec import Meta

MOST_WORDS = 3  # of a phrase
AT_NO_END = STOP_WORDS - set(NUMBER_WORDS[2:])  # "two dogs" is a phrase, "dogs on" is none


class PhrasesConfig(Struct):
    """`config.json` of phrases: `model_key` is that of the model whose embeddings these are."""

    model_key: Text
    weight: Annotated[float, Meta(ge=0, le=1000)]
    phrases: list[Text]


PHRASES_KIND = FolderKind("phrases", 1, PhrasesConfig, {"directions": "int n d"})


@dataclass(frozen=True, eq=False)
class Phrases:
    """Phrases that many captions contain, the unit direction (n, d) of each, and their weight w."""

    phrases: Sequence[str]
    directions: np.ndarray
    weight: float

    def complete(self, query: Sequence[str], embedding: np.ndarray) -> np.ndarray:
        """The embedding (d,) of a query, given as tokens, moved as the module says; zero stays zero."""
        direction = self._find_direction(find_phrase(query))
        if direction is None or not embedding.any():
            return embedding
        return unit_rows(embedding[None] + np.float32(self.weight) * direction)[0]

    def _find_direction(self, phrase: Sequence[str]) -> np.ndarray | None:
        """That of a phrase (d,), or else of its words, or None if one of them is in few captions."""
        row = self._rows.get(" ".join(phrase))
        if row is not None:
            return self.directions[row]
        telling = [word for word in phrase if word not in AT_NO_END]
        rows = [self._rows[word] for word in telling if word in self._rows]
        if len(phrase) > MOST_WORDS or not rows or len(rows) < len(telling):
            return None
        return unit_rows(self.directions[rows].sum(axis=0, keepdims=True))[0]

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {phrase: row for row, phrase in enumerate(self.phrases)}

    def save(self, folder: str | os.PathLike, model_key: str) -> None:
        """Write the phrases, and their directions as int8."""
        config = PhrasesConfig(model_key, self.weight, list(self.phrases))
        save_folder(folder, PHRASES_KIND, config, {"directions": to_bytes(self.directions)})

    @classmethod
    def load(cls, folder: str | os.PathLike, model_key: str, dimension: int) -> Phrases:
        """Read what `save` wrote for the model with this key."""
        saved = load_folder(folder, PHRASES_KIND)
        config = saved.config
        if config.model_key != model_key:
            raise FishermixError(
                f"The phrases in {folder} were encoded by another model. Delete them.",
                code="wrong_sentences",
            )
        directions = saved.tensors["directions"]
        shape = (len(config.phrases), dimension)
        if directions.shape != shape or directions.dtype != np.int8 or not directions.any(axis=1).all():
            raise FishermixError(
                f"{folder} is damaged: the directions of the phrases are invalid.", code="damaged"
            )
        return cls(config.phrases, from_bytes(directions), config.weight)


def find_phrase(words: Sequence[str]) -> Sequence[str]:
    """The words without those at their ends that say nothing alone.

    >>> find_phrase(["a", "bowl", "of", "soup"])
    ['bowl', 'of', 'soup']
    """
    telling = [position for position, word in enumerate(words) if word not in AT_NO_END]
    return words[telling[0] : telling[-1] + 1] if telling else []


def split_query(query: str | Sequence[str]) -> list[str]:
    """The tokens of a query that may have been split before."""
    return tokenize(query) if isinstance(query, str) else list(query)
