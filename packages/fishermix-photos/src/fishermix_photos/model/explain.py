"""What each word of a sentence contributes to its score with a photo: what it loses without the word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from fishermix.text.tokens import tokenize

from fishermix_photos.model.subtraction import subtract_scores

if TYPE_CHECKING:
    from fishermix_photos.model.model import ImageTextModel

Encode = Callable[[str], tuple[np.ndarray, list[str]]]


@dataclass(frozen=True)
class WordPart:
    """A word of the sentence, and how much the score drops without it."""

    word: str
    drop: float


@dataclass(frozen=True)
class SubtractedPart:
    """A sentence that the query subtracts, its own score with the photo, and how much the query's score drops
    for it.
    """

    sentence: str
    score: float
    drop: float = 0.0


@dataclass(frozen=True)
class Explanation:
    """What contributes to a score.

    score : that of a search: without what is subtracted
    words : in the order of the sentence
    out_of_vocabulary : the words of the sentence that the model does not know
    subtracted : the sentences that the query subtracts
    """

    score: float
    words: list[WordPart]
    out_of_vocabulary: list[str] = field(default_factory=list)
    subtracted: list[SubtractedPart] = field(default_factory=list)


def explain_score(
    sentence: str,
    point: np.ndarray,
    subtracted: Sequence[tuple[str, float]],
    model: ImageTextModel,
    encode: Encode,
) -> Explanation:
    """Explain the score of a sentence and of the photo with this unit point (d,).

    subtracted : sentences that the query subtracts, and their weights
    encode : how the search encodes a sentence: its point, and its out-of-vocabulary words
    """
    words = tokenize(sentence)
    space = model.joint_space
    whole, unknown = encode(sentence)
    without = model.encode_queries([words[:i] + words[i + 1 :] for i in range(len(words))])
    others = [encode(text)[0] for text, _ in subtracted]
    photo = space.csls_left(np.asarray(point, np.float32)[None])[0]
    scores = space.csls_right(np.vstack([whole, without, *others])) @ photo
    wanted, without_words, unwanted = scores[:1], scores[1 : len(words) + 1], scores[len(words) + 1 :]
    losses = [
        float((wanted - subtract_scores(wanted, score[None, None], [weight]))[0])
        for score, (_, weight) in zip(unwanted, subtracted)
    ]
    return Explanation(
        score=float(wanted[0]) - sum(losses),
        words=[WordPart(word, float(wanted[0] - left)) for word, left in zip(words, without_words)],
        out_of_vocabulary=unknown,
        subtracted=[
            SubtractedPart(text, float(score), loss)
            for (text, _), score, loss in zip(subtracted, unwanted, losses)
        ],
    )
