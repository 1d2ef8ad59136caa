"""Why a photo matched a sentence: which words carried the score, and which components of the mixtures.

A word's part is what the score loses when the word is left out. A component's part is exact too: with f the
sentence vector, m its mean over the training set, W the scaled weights of the CCA and v the photo's unit
point,

    cosine = sum over coordinates j of (f - m)_j (W v)_j / |(f - m) W|,

and the coordinates of a component are those of its location and scale blocks. The score is the cosine less
what `fishermix.model.hubness` takes off.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fishermix.errors import FishermixError
from fishermix.text.tokens import tokenize

COMMON_WORDS = 10_000
NEAR_WORDS = 5
# A word counts as one of a component's words from this posterior on.
AT_HOME = 0.2


@dataclass(frozen=True)
class WordPart:
    """A word of the sentence and how much the score falls when it is left out."""

    word: str
    drop: float


@dataclass(frozen=True)
class ComponentPart:
    """What a component adds to the cosine; vocabulary words near its centre; the sentence's words that
    belong to it.
    """

    part: float
    near: list[str]
    words: list[str]


@dataclass(frozen=True)
class Explanation:
    """`words` in the sentence's order; `components` that hold a word of it, the largest part first.

    The parts of the components, `rest`, that of all components without a word, and `crowding`, what being
    near to much takes off or adds, add up to `score`.
    """

    score: float
    words: list[WordPart]
    components: list[ComponentPart]
    rest: float
    hubness: float


class Explainer:
    """Explains matches of one model; what it learns about the components is kept."""

    def __init__(self, model):
        self.model = model
        encoder = model.sentence_encoder
        self._mixtures = list(encoder.mixtures) if encoder is not None else []

    def explain(self, sentence: str, image_point: np.ndarray) -> Explanation:
        """Why `sentence` and the photo with the unit point `image_point` (d,) match."""
        image_point = np.asarray(image_point, np.float32)
        words = tokenize(sentence)
        without = [" ".join(words[:i] + words[i + 1 :]) for i in range(len(words))]
        points = self.model.encode_text([sentence, *without])
        if not points[0].any():
            raise FishermixError(f"the model knows no word of '{sentence}': try other, plainer words")
        photo = self.model.match_images(image_point[None])[0]
        score, *others = (self.model.match_sentences(points) @ photo).tolist()
        parts = [WordPart(word, score - left) for word, left in zip(words, others)]
        components = self._components(sentence, words, image_point) if self._mixtures else []
        cosine = float(points[0] @ image_point)
        rest = cosine - sum(component.part for component in components)
        return Explanation(score, parts, components, rest, score - cosine)

    def _components(self, sentence: str, words: list[str], image_point: np.ndarray) -> list[ComponentPart]:
        homes = self._homes(words)
        found, start = [], 0
        shares = self._coordinate_parts(sentence, image_point)
        for number, mixture in enumerate(self._mixtures):
            size = 2 * mixture.locations_.size
            by_component = shares[start : start + size].reshape(2, *mixture.locations_.shape).sum(axis=(0, 2))
            start += size
            for component, part in enumerate(by_component.tolist()):
                if belonging := homes.get((number, component)):
                    found.append(ComponentPart(part, self._near_words[number][component], belonging))
        return sorted(found, key=lambda component: -component.part)

    def _coordinate_parts(self, sentence: str, image_point: np.ndarray) -> np.ndarray:
        """The terms (q,) of the sum above."""
        cca = self.model.cca
        scale = cca.correlations_ ** float(cca.scale)
        centred = self.model.sentence_encoder.transform([sentence])[0].astype(np.float64) - cca.y_mean_
        point = (centred @ cca.y_weights_.astype(np.float32)) * scale
        return centred * (cca.y_weights_.astype(np.float32) @ (scale * image_point)) / np.linalg.norm(point)

    def _homes(self, words: list[str]) -> dict[tuple[int, int], list[str]]:
        """The sentence's words by (mixture, component) they belong to."""
        lookup = self.model.sentence_encoder.lookup
        homes: dict[tuple[int, int], list[str]] = {}
        for word in dict.fromkeys(lookup.tokenize(words)):
            if rows := lookup[word]:
                vectors = self._whitened(np.asarray(rows))
                for number, mixture in enumerate(self._mixtures):
                    posteriors = mixture.sparse_posteriors(vectors).toarray().mean(axis=0)
                    for component in np.flatnonzero(posteriors > AT_HOME).tolist():
                        homes.setdefault((number, component), []).append(word)
        return homes

    @cached_property
    def _near_words(self) -> list[list[list[str]]]:
        """For each component of each mixture, the common words that are its own and nearest to its centre."""
        names = self.model.sentence_encoder.vectors.words
        rows = np.array(
            [row for row, word in enumerate(names[:COMMON_WORDS]) if word.isalpha() and word.islower()]
        )
        vectors = self._whitened(rows)
        near = []
        for mixture in self._mixtures:
            posteriors = mixture.sparse_posteriors(vectors).tocsc()
            mine = []
            for component, (location, scale) in enumerate(zip(mixture.locations_, mixture.scales_)):
                members = posteriors[:, [component]].tocoo()
                members = members.row[members.data > 0.5]
                distances = np.abs((vectors[members] - location) / scale).mean(axis=1)
                mine.append([names[rows[member]] for member in members[np.argsort(distances)[:NEAR_WORDS]]])
            near.append(mine)
        return near

    def _whitened(self, rows: np.ndarray) -> np.ndarray:
        encoder = self.model.sentence_encoder
        vectors = np.asarray(encoder.vectors.vectors[rows], np.float32)
        return vectors if encoder.whitening is None else encoder.whitening.transform(vectors)
