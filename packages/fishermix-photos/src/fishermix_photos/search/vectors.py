"""The vector of a query: its dot product with the stored vector of a photo is the score.

Each term is an embedding of unit length. The query is the sum of the embeddings of what it adds, with their
weights, scaled to unit length. A query that contains a sentence is scored like a sentence (CSLS); photos
alone are compared with photos by the cosine. What a query subtracts has its own vectors: a photo that shows
it loses score (`model.subtraction`). A query that only subtracts is the opposite of the sum.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from fishermix.errors import FishermixError
from fishermix.text.tokens import STOP_WORDS

from fishermix_photos.model.subtraction import subtract_scores
from fishermix_photos.search.spelling import is_known_form
from fishermix_photos.search.terms import Term

if TYPE_CHECKING:
    from fishermix_photos.model.model import ImageTextModel

COLOR = re.compile(r"\b(?:black|white|red|green|blue|yellow|orange|brown|purple|pink|gray|grey)\b")
NUMBER = re.compile(
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|[1-9]|single|pair|several|many)\b"
)
PLACE = re.compile(
    r"\b(?:in|on|at|by|near|under|over|behind|beside|above|below|around|inside|outside|next|between|against"
    r"|along|across|through|into|onto|off)\b"
)
SHORTEST_SUM = 1e-6  # a shorter sum of unit vectors has no direction but that of rounding errors
FindEmbedding = Callable[[str], np.ndarray | None]


class UnknownTerm(FishermixError):
    """No word of a sentence is in the model's vocabulary, or a photo is not in the library."""

    code = "unknown_term"


class QueryKind(NamedTuple):
    """Whether a query names a color, a number or a place: scores say less about whether these are right."""

    color: bool = False
    number: bool = False
    place: bool = False


PLAIN = QueryKind()


@dataclass(frozen=True, eq=False)
class QueryVector:
    """A query as an index compares it with photos.

    vector : (d,), whose dot product with the stored vector of a photo is the score
    unwanted : (m, d), the same for each term that is subtracted; `weights` (m,) are theirs
    dimension : that of the embeddings; the rest of a vector is its hubness
    unknown_words : those that are out of the model's vocabulary
    n_words : the number of words that describe the photo; 0 for a query of photos alone
    is_guess : whether the model knows none of these words
    nearness : of the sentences that the query adds to what the model was trained on, the largest cosine
    kind : what the query asks for
    """

    vector: np.ndarray
    dimension: int
    unknown_words: tuple[str, ...] = ()
    n_words: int = 0
    is_guess: bool = False
    nearness: float = 1.0
    kind: QueryKind = PLAIN
    unwanted: np.ndarray | None = None
    weights: tuple[float, ...] = ()

    def subtract(self, scores: np.ndarray, photos: np.ndarray) -> np.ndarray:
        """The scores (n,) of photos (n, d) without what is unwanted."""
        if self.unwanted is None:
            return scores
        return subtract_scores(scores, photos @ self.unwanted.T, self.weights)


class Sentences:
    """The embeddings of the sentences of a query. Each is encoded once, however often it is asked for."""

    def __init__(self, model: Callable[[], ImageTextModel]):
        self._model = model  # is called for the first sentence: a query without one does not load it
        self._known: dict[str, tuple[np.ndarray, list[str]]] = {}

    def encode(self, sentence: str) -> tuple[np.ndarray, list[str]]:
        """The embedding (d,) of a sentence, and its words that are out of the vocabulary."""
        if sentence not in self._known:
            self._known[sentence] = encode_sentence(sentence, self._model())
        return self._known[sentence]


def encode_sentence(sentence: str | Sequence[str], model: ImageTextModel) -> tuple[np.ndarray, list[str]]:
    """The embedding (d,) of a sentence (a string or its tokens), and its out-of-vocabulary words."""
    embedding, unknown = model.encode_query(sentence)
    if embedding.any():
        return embedding, unknown
    text = sentence if isinstance(sentence, str) else " ".join(sentence)
    if not text.strip():
        # No tokens: a text without words, for example of control characters.
        kind = FishermixError if isinstance(sentence, str) else UnknownTerm
        raise kind("The query is empty. Describe a photo in a few words.")
    raise UnknownTerm(f"'{text}' contains no word that fishermix knows.", words=tuple(unknown))


def embed_terms(
    terms: Sequence[Term],
    model: ImageTextModel,
    find_embedding: FindEmbedding,
    sentences: Sentences | None = None,
) -> QueryVector:
    """The vector of terms.

    find_embedding : gives the embedding (d,) of a photo of the library by its id, or None
    sentences : those that have been encoded before
    """
    sentences = sentences or Sentences(lambda: model)
    embeddings: dict[Term, np.ndarray] = {}
    unknown: list[str] = []
    # Sentences first: an unknown word is reported before the image network is opened.
    for term in sorted(terms, key=lambda term: term.kind == "photo"):
        if term.kind == "photo":
            embeddings[term] = model.encode_images([term.value])[0]
        elif term.kind == "text":
            embeddings[term], not_in_vocabulary = sentences.encode(term.value)
            unknown += _drop_known_forms(not_in_vocabulary, model)
        elif (embedding := find_embedding(term.value)) is not None:
            embeddings[term] = embedding
        else:
            raise UnknownTerm(f"There is no photo '{term.value}' in the library.", photo=term.value)
    _add_terms(terms, embeddings)  # raises if the terms cancel out
    wanted = [term for term in terms if term.sign == "+"] or terms
    unwanted = [term for term in terms if term not in wanted]
    vector = _add_terms(wanted, embeddings)
    minus = [_compare(embeddings[term], term.kind == "text", model) for term in unwanted]
    sentences_wanted = [term for term in wanted if term.kind == "text" and term.sign == "+"]
    telling = find_telling_words([term.value for term in sentences_wanted])
    hubness = model.joint_space.hubness
    near = [] if hubness is None else [hubness.find_nearness(embeddings[term]) for term in sentences_wanted]
    return QueryVector(
        vector=_compare(vector, any(term.kind == "text" for term in wanted), model),
        dimension=len(vector),
        unknown_words=tuple(unknown),
        n_words=len(telling) or len(sentences_wanted),
        is_guess=bool(telling) and telling.issubset(unknown),
        nearness=max(near, default=1.0),
        kind=find_query_kind(terms),
        unwanted=np.stack(minus) if minus else None,
        weights=tuple(term.weight for term in unwanted),
    )


def _drop_known_forms(words: Sequence[str], model: ImageTextModel) -> list[str]:
    """Words without those such as gorillas, if gorilla is known and a transformer reads the ending."""
    is_read = model.reads_unknown_words
    return [word for word in words if not (is_read and is_known_form(word, model.vocabulary))]


def _compare(embedding: np.ndarray, is_sentence: bool, model: ImageTextModel) -> np.ndarray:
    """What a sentence or a photo with this embedding is compared with photos by."""
    if is_sentence:
        return model.joint_space.csls_right(embedding[None])[0]
    return compare_by_cosine(embedding, model)


def _add_terms(terms: Sequence[Term], embeddings: dict[Term, np.ndarray]) -> np.ndarray:
    """The sum (d,) of embeddings with their signs and weights, scaled to unit length."""
    signs = {"+": 1.0, "-": -1.0}
    parts = [np.float32(signs[term.sign] * term.weight) * embeddings[term] for term in terms]
    total = np.sum(parts, axis=0)
    norm = float(np.linalg.norm(total))
    if norm < SHORTEST_SUM:
        raise FishermixError("The terms of the query cancel out. Remove one of them.", code="wrong_query")
    return total / np.float32(norm)


def compare_by_cosine(embedding: np.ndarray, model: ImageTextModel) -> np.ndarray:
    """The query vector of a photo's embedding (d,): zeros switch the hubness correction off."""
    return np.pad(np.asarray(embedding, np.float32), (0, model.csls_dimension - len(embedding)))


def find_query_kind(terms: Sequence[Term]) -> QueryKind:
    """The kind of the sentences that a query adds."""
    wanted = [term.value.lower() for term in terms if term.kind == "text" and term.sign == "+"]

    def has_one(words: re.Pattern[str]) -> bool:
        return any(words.search(text) for text in wanted)

    return QueryKind(color=has_one(COLOR), number=has_one(NUMBER), place=has_one(PLACE))


def find_telling_words(texts: Sequence[str]) -> set[str]:
    """The words of texts that describe something: not "a" or "of"."""
    words = {word.lower().strip(".,;:!?'\"") for text in texts for word in text.split()}
    return words - STOP_WORDS
