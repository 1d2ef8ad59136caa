"""Why a photo matches a sentence: the contributions of its words and of the components of the mixtures.

The contribution of a word is what the score loses without the word. The contribution of a component is exact
too: with f the sentence vector, m its mean over the training set, W the scaled weights of the CCA and v the
unit point of the photo,

    cosine = sum over coordinates j of (f - m)_j (W v)_j / |(f - m) W|,

and the coordinates of a component are those of its location and scale blocks. The score is the cosine plus
the hubness correction (`fishermix.joint`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from fishermix.text.tokens import tokenize

from fishermix_photos.query import encode_sentence

COMMON_WORDS = 10_000  # the first words of the vocabulary, among which similar words are looked for
SIMILAR_WORDS = 5
SMALLEST_POSTERIOR = 0.2  # of a word of the sentence that is listed with a component
SMALLEST_POSTERIOR_OF_SIMILAR = 0.5  # such a word belongs to one component


@dataclass(frozen=True)
class WordPart:
    """A word of the sentence, and how much the score drops without it."""

    word: str
    drop: float


@dataclass(frozen=True)
class ComponentPart:
    """What a component contributes to the cosine, vocabulary words near its center, and the words of the
    sentence that belong to it.
    """

    part: float
    near: list[str]
    words: list[str]


@dataclass(frozen=True)
class SubtractedPart:
    """A sentence that the query subtracts, and its own score with the photo."""

    sentence: str
    score: float


@dataclass(frozen=True)
class Explanation:
    """The contributions to a score. `components`, `transformer`, `rest` and `hubness` add up to `score`.

    words : in the order of the sentence
    components : those that contain a word of the sentence, the largest contribution first
    transformer : the contribution of the sentence transformer, which reads the sentence as a whole; 0 without
    rest : the contribution of all other components
    hubness : the hubness correction, CSLS score minus cosine
    out_of_vocabulary : the words of the sentence that the model does not know
    subtracted : the sentences that the query subtracts; they are no part of `score`
    """

    score: float
    words: list[WordPart]
    components: list[ComponentPart]
    rest: float
    hubness: float
    out_of_vocabulary: list[str] = field(default_factory=list)
    transformer: float = 0.0
    subtracted: list[SubtractedPart] = field(default_factory=list)


class Explainer:
    """Explains the scores of one model; computes the similar words of the components once."""

    def __init__(self, model):
        self.model = model
        encoder = model.sentence_encoder
        self._mixtures = list(encoder.mixtures) if encoder is not None else []

    def explain(self, sentence: str, image_point: np.ndarray, subtracted: Sequence[str] = ()) -> Explanation:
        """Explain the score of `sentence` and the photo with the unit point `image_point` (d,).

        subtracted : sentences that the query subtracts; each has its own score
        """
        image_point = np.asarray(image_point, np.float32)
        words = tokenize(sentence)
        # As a search encodes it: the transformer reads punctuation too.
        point, unknown = encode_sentence(sentence, self.model)
        without = self.model.encode_text([words[:i] + words[i + 1 :] for i in range(len(words))])
        photo = self.model.joint_space.csls_images(image_point[None])[0]
        points = self.model.joint_space.csls_sentences(np.vstack([point, without]))
        score, *others = (points @ photo).tolist()
        parts = [WordPart(word, score - left) for word, left in zip(words, others)]
        components, transformer = self._explain_views(sentence, image_point) if self._mixtures else ([], 0.0)
        cosine = float(point @ image_point)
        rest = cosine - transformer - sum(component.part for component in components)
        others = [self._score(text, photo) for text in subtracted]
        return Explanation(score, parts, components, rest, score - cosine, unknown, transformer, others)

    def _score(self, sentence: str, photo: np.ndarray) -> SubtractedPart:
        point, _ = encode_sentence(sentence, self.model)
        return SubtractedPart(sentence, float(self.model.joint_space.csls_sentences(point[None])[0] @ photo))

    def _explain_views(self, sentence: str, image_point: np.ndarray) -> tuple[list[ComponentPart], float]:
        """What the components of the mixtures contribute to the cosine, and what the transformer does."""
        members = self._words_of_components(tokenize(sentence))
        found, start = [], 0
        terms = self._split_cosine(sentence, image_point)
        for number, mixture in enumerate(self._mixtures):
            size = 2 * mixture.locations_.size
            by_component = terms[start : start + size].reshape(2, *mixture.locations_.shape).sum(axis=(0, 2))
            start += size
            for component, part in enumerate(by_component.tolist()):
                if belonging := members.get((number, component)):
                    found.append(ComponentPart(part, self._similar_words[number][component], belonging))
        return sorted(found, key=lambda component: -component.part), float(terms[start:].sum())

    def _split_cosine(self, sentence: str, image_point: np.ndarray) -> np.ndarray:
        """The terms (q,) of the sum in the description of this module."""
        projections = self.model.joint_space.projections
        weights = projections.y_weights.astype(np.float32)
        scale = projections.correlations ** float(self.model.joint_space.power)
        vector = self.model.sentence_encoder.transform([sentence])[0]
        centered = self.model.joint_space.center_sentence(vector)
        point = (centered @ weights) * scale
        return centered * (weights @ (scale * image_point)) / np.linalg.norm(point)

    def _words_of_components(self, words: list[str]) -> dict[tuple[int, int], list[str]]:
        """The words of the sentence by the (mixture, component) that they belong to."""
        lookup = self.model.sentence_encoder.lookup
        members: dict[tuple[int, int], list[str]] = {}
        for word in dict.fromkeys(lookup.tokenize(words)):
            if rows := lookup[word]:
                vectors = self._whiten(np.asarray(rows))
                for number, mixture in enumerate(self._mixtures):
                    posteriors = mixture.predict_proba(vectors).mean(axis=0)
                    for component in np.flatnonzero(posteriors > SMALLEST_POSTERIOR).tolist():
                        members.setdefault((number, component), []).append(word)
        return members

    @cached_property
    def _similar_words(self) -> list[list[list[str]]]:
        """For each component of each mixture, its common words, the nearest to its center first."""
        names = self.model.sentence_encoder.vectors.words
        rows = np.array(
            [row for row, word in enumerate(names[:COMMON_WORDS]) if word.isalpha() and word.islower()]
        )
        vectors = self._whiten(rows)
        near = []
        for mixture in self._mixtures:
            posteriors = mixture.predict_proba(vectors)
            of_mixture = []
            for component, (location, scale) in enumerate(zip(mixture.locations_, mixture.scales_)):
                members = np.flatnonzero(posteriors[:, component] > SMALLEST_POSTERIOR_OF_SIMILAR)
                distances = np.abs((vectors[members] - location) / scale).mean(axis=1)
                nearest = members[np.argsort(distances)[:SIMILAR_WORDS]]
                of_mixture.append([names[rows[member]] for member in nearest])
            near.append(of_mixture)
        return near

    def _whiten(self, rows: np.ndarray) -> np.ndarray:
        encoder = self.model.sentence_encoder
        vectors = np.asarray(encoder.vectors.vectors[rows], np.float32)
        return vectors if encoder.whitening is None else encoder.whitening.transform(vectors)
