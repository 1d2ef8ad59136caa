"""Why a photo matches a sentence: the contribution of a word is what the score loses without the word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from fishermix.text.tokens import tokenize

from fishermix_photos.query import encode_sentence


@dataclass(frozen=True)
class WordPart:
    """A word of the sentence, and how much the score drops without it."""

    word: str
    drop: float


@dataclass(frozen=True)
class SubtractedPart:
    """A sentence that the query subtracts, and its own score with the photo."""

    sentence: str
    score: float


@dataclass(frozen=True)
class Explanation:
    """What contributes to a score.

    words : in the order of the sentence
    out_of_vocabulary : the words of the sentence that the model does not know
    subtracted : the sentences that the query subtracts; they are no part of `score`
    """

    score: float
    words: list[WordPart]
    out_of_vocabulary: list[str] = field(default_factory=list)
    subtracted: list[SubtractedPart] = field(default_factory=list)


def explain_score(sentence: str, point: np.ndarray, subtracted: Sequence[str], model) -> Explanation:
    """Explain the score of a sentence and of the photo with this unit point (d,)."""
    words, space = tokenize(sentence), model.joint_space
    # As a search encodes it: the transformer reads punctuation too.
    whole, unknown = encode_sentence(sentence, model)
    without = model.encode_text([words[:i] + words[i + 1 :] for i in range(len(words))])
    others = [encode_sentence(text, model)[0] for text in subtracted]
    photo = space.csls_images(np.asarray(point, np.float32)[None])[0]
    score, *scores = (space.csls_sentences(np.vstack([whole, without, *others])) @ photo).tolist()
    return Explanation(
        score,
        [WordPart(word, score - left) for word, left in zip(words, scores)],
        unknown,
        [SubtractedPart(*pair) for pair in zip(subtracted, scores[len(words) :])],
    )
