"""`SentenceEncoder`: the scikit-learn estimator around `SentenceVectors`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from fishermix.errors import FishermixError
from fishermix.fisher.fitted import check_mixture, fit_mixture, freeze, own_mixture
from fishermix.fisher.sets import parse_weights
from fishermix.mixture import Mixture
from fishermix.text.lookup import WordLookup
from fishermix.text.sentences import (
    BLOCK_SENTENCES,
    SentenceVectors,
    Transformer,
    check_norm,
    warn_if_empty,
)
from fishermix.text.tokens import Sentence
from fishermix.text.word_vectors import WordVectors


class SentenceEncoder(TransformerMixin, BaseEstimator):
    """Map sentences to vectors (n, n_features) float32.

    Parameters
    ----------
    vectors : WordVectors
        The word vectors, of dimension D. Nothing is fitted about them.
    whitening : Whitening, optional
        `fit` fits a clone of it to the vectors of the words that occur in the sentences.
    mixtures : mixture or list of mixtures, default ()
        `fit` fits clones of them to the (whitened) vectors of all words of the sentences. Their Fisher
        vectors are put side by side, each normalized by `power` and `norm`. Without any, the vector of a
        sentence is the mean of its (whitened) word vectors, and `power` and `norm` have no effect.
    power : float, default 0.5
        Exponent of the power normalization, 1 for none.
    norm : {"l2", None}, default "l2"
        "l2" scales each Fisher vector to unit length.
    stop_words : iterable of str, default ()
        Tokens to skip.
    transformer : Transformer, optional
        A sentence transformer, whose unit vectors are put next to the Fisher vectors or the mean.
    transformer_weight : float, default 1.0
        The transformer's vectors are multiplied by it.

    Attributes
    ----------
    whitening_ : Whitening or None
        The fitted whitening.
    mixtures_ : list of Mixture
        The fitted mixtures.
    n_features : int
        Length of a sentence vector: the sum of 2 K D over the mixtures, or D without any, plus the
        transformer's.
    sentence_vectors : SentenceVectors
        The plain object that computes.
    lookup : WordLookup
        Finds the rows of `vectors` for the tokens of a sentence.

    See Also
    --------
    fishermix.FisherEncoder : Fisher vectors of any sets.
    fishermix.text.whitening.Whitening : ICA or PCA of word vectors.
    sklearn.feature_extraction.text.TfidfVectorizer : counts of words instead.

    Notes
    -----
    To use a whitening and mixtures that are fitted already, such as to the whole vocabulary as in the paper,
    call `SentenceEncoder.from_fitted`. Without whitening and mixtures, `transform` needs no `fit`.

    A sentence is a string, which `tokenize` splits, or a list of tokens. A token out of vocabulary is tried
    in other spellings (`tokens.spellings`), then, if hyphenated, by its parts, and skipped otherwise. A
    sentence without any word of the vocabulary has the zero vector, and `transform` warns once of all of
    them; `lookup.find(sentences)` lists these (`empty`) and the unknown words (`out_of_vocabulary`).

    References
    ----------
    Klein, Lev, Sadeh, Wolf (CVPR 2015), Associating Neural Word Embeddings with Deep Image Representations
    using Fisher Vectors; arXiv:1411.7399.

    Examples
    --------
    >>> encoder = SentenceEncoder(WordVectors(["dog", "cat"], [[1, 0], [0, 1]]))
    >>> encoder.transform(["A dog!", "dog, cat"]).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """

    def __init__(
        self,
        vectors: WordVectors,
        whitening: Any = None,
        mixtures: Sequence[Any] = (),
        power: float = 0.5,
        norm: str | None = "l2",
        stop_words: Iterable[str] = (),
        transformer: Transformer | None = None,
        transformer_weight: float = 1.0,
    ):
        self.vectors = vectors
        self.whitening = whitening
        self.mixtures = mixtures
        self.power = power
        self.norm = norm
        self.stop_words = stop_words
        self.transformer = transformer
        self.transformer_weight = transformer_weight

    @classmethod
    def from_fitted(
        cls, vectors: WordVectors, whitening: Any = None, mixtures: Any = (), **options: Any
    ) -> SentenceEncoder:
        """Return an encoder that uses a fitted whitening and fitted mixtures, ready to `transform`.

        Parameters
        ----------
        vectors : WordVectors
            The word vectors.
        whitening : Whitening, optional
            A fitted whitening of the word vectors.
        mixtures : mixture or list of mixtures, default ()
            Fitted mixtures over the (whitened) word vectors.
        **options
            The other parameters of `SentenceEncoder`.

        Returns
        -------
        encoder : SentenceEncoder
            It has copies of the whitening and the mixtures: fitting them again does not change the encoder.
            Fitting the encoder, or a clone of it in cross-validation, does not fit them again.
        """
        frozen = [freeze(mixture) for mixture in _check_mixtures(mixtures)]
        encoder = cls(vectors, freeze(whitening), frozen, **options)
        encoder._set_parts(encoder.whitening, [own_mixture(mixture) for mixture in frozen])
        return encoder

    def fit(
        self, X: Iterable[Sentence] = (), y: object = None, *, sample_weight: ArrayLike | None = None
    ) -> SentenceEncoder:
        """Fit the whitening and the mixtures to the words of the sentences.

        Parameters
        ----------
        X : iterable of sentences
            Strings or lists of tokens.
        y : ignored
            Present for the interface of scikit-learn.
        sample_weight : array-like of shape (n,), optional
            The weight of each sentence. Weight 2 counts as the same sentence twice.

        Returns
        -------
        self : SentenceEncoder
            The encoder, with the fitted parts as `whitening_` and `mixtures_`.
        """
        check_norm(self.norm)
        mixtures = _check_mixtures(self.mixtures)
        if all(part is None or isinstance(part, FrozenEstimator) for part in (self.whitening, *mixtures)):
            return self._set_parts(self.whitening, [own_mixture(mixture) for mixture in mixtures])
        if not isinstance(self.vectors, WordVectors):
            raise FishermixError(
                f"vectors is a {type(self.vectors).__name__}, not WordVectors.", code="wrong_parameter"
            )
        rows, weights = self._count_words(X, sample_weight)
        vectors = np.asarray(self.vectors.vectors[rows], np.float32)
        whitening = None
        if self.whitening is not None:
            whitening = clone(self.whitening).fit(vectors, None)
            vectors = whitening.transform(vectors).astype(np.float32)
        return self._set_parts(whitening, [fit_mixture(mixture, vectors, weights) for mixture in mixtures])

    def _count_words(self, sentences: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the words of the sentences, each once, and how often each occurs, by weight."""
        sentences = _list_sentences(sentences)
        bags = WordLookup(self.vectors.words, self.stop_words).find(sentences)
        if not len(bags.rows):
            raise FishermixError(
                "No word of the sentences is in the vocabulary: there is nothing to fit to.",
                code="wrong_parameter",
            )
        weights = np.ones(len(sentences))
        if sample_weight is not None:
            weights = parse_weights(sample_weight, len(sentences), "sentence")
        rows, positions = np.unique(bags.rows, return_inverse=True)
        return rows, np.bincount(positions, weights=np.repeat(weights, np.diff(bags.offsets)))

    def fit_transform(
        self, X: Iterable[Sentence], y: object = None, *, sample_weight: ArrayLike | None = None
    ) -> np.ndarray:
        """Fit to the sentences and return their vectors. X is read once, and may be an iterator.

        Returns
        -------
        vectors : ndarray of shape (n, n_features)
            As of `transform`.
        """
        sentences = _list_sentences(X)
        return self.fit(sentences, sample_weight=sample_weight).transform(sentences)

    def _set_parts(self, whitening: Any, mixtures: list[Mixture]) -> SentenceEncoder:
        if isinstance(whitening, FrozenEstimator):
            whitening = copy.deepcopy(whitening.estimator)
        if whitening is not None:
            check_is_fitted(whitening)
        self.whitening_ = whitening
        self.mixtures_ = mixtures
        return self

    @property
    def sentence_vectors(self) -> SentenceVectors:
        """The object that computes, made of the current parameters when it is first needed."""
        if "_sentence_vectors" not in self.__dict__:
            if not self.__sklearn_is_fitted__():
                raise NotFittedError(
                    "This SentenceEncoder is not fitted. fit(sentences) fits its whitening and mixtures; "
                    "SentenceEncoder.from_fitted uses fitted ones."
                )
            given = self.get_params(deep=False)
            whitening = getattr(self, "whitening_", None)
            given["whitening"] = getattr(whitening, "whitening_", whitening)
            given["mixtures"] = [mixture._parameters for mixture in getattr(self, "mixtures_", ())]
            self.__dict__["_sentence_vectors"] = SentenceVectors(**given)
        return self.__dict__["_sentence_vectors"]

    @property
    def n_features(self) -> int:
        return self.sentence_vectors.n_features

    @property
    def lookup(self) -> WordLookup:
        return self.sentence_vectors.lookup

    def transform(self, X: Sequence[Sentence]) -> np.ndarray:
        """Vectors (n, n_features) float32 of sentences, each a string or a list of tokens.

        Returns
        -------
        vectors : ndarray of shape (n, n_features)
            float32; zero for a sentence without known words.
        """
        X = _list_sentences(X)
        out, bags = self.sentence_vectors.encode(X)
        warn_if_empty(self.sentence_vectors.count_empty(bags), len(X))
        return out

    def blocks(self, sentences: Iterable[Sentence], rows: int = BLOCK_SENTENCES) -> Iterator[np.ndarray]:
        """The rows of `transform(sentences)` in blocks of `rows`, with one block in memory at a time."""
        return self.sentence_vectors.encode_blocks(sentences, rows)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """mean_d; or, of mixture i, mixture_i_location_k_d for all k and d and then mixture_i_scale_k_d.

        The numbers of a transformer follow as transformer_d. `input_features` is ignored.
        """
        return np.array(self.sentence_vectors.feature_names, dtype=object)

    def with_words_of(self, sentences: Iterable[Sentence], n_words: int = 0) -> SentenceEncoder:
        """An encoder with a smaller vocabulary that gives these sentences the same vectors.

        The vocabulary has all words of the sentences, including stop words, and the first of the others until
        there are `n_words`.
        """
        used = np.unique(WordLookup(self.vectors.words).find(sentences).rows)
        others = np.setdiff1d(np.arange(len(self.vectors)), used)
        kept = np.sort(np.concatenate([used, others[: max(0, n_words - len(used))]]))
        return copy.copy(self).set_params(vectors=self.vectors[kept])

    def __sklearn_clone__(self) -> SentenceEncoder:
        # The vectors and the transformer are shared. scikit-learn would copy what is no estimator.
        twin = copy.copy(self)
        twin.whitening = clone(self.whitening, safe=False)
        twin.mixtures = clone(self.mixtures, safe=False)
        for name in ("whitening_", "mixtures_"):
            twin.__dict__.pop(name, None)
        return twin

    def __sklearn_is_fitted__(self) -> bool:
        nothing_to_fit = self.whitening is None and not _list_mixtures(self.mixtures)
        return nothing_to_fit or hasattr(self, "mixtures_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = self.whitening is not None or bool(_list_mixtures(self.mixtures))
        tags.no_validation = True
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.__dict__.pop("_sentence_vectors", None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_sentence_vectors"}


def _list_mixtures(mixtures: Any) -> list[Any]:
    """The mixtures of a list, or the only one."""
    if hasattr(mixtures, "get_params"):
        return [mixtures]
    if not isinstance(mixtures, Iterable) or isinstance(mixtures, str):
        raise FishermixError(
            f"mixtures is a {type(mixtures).__name__}. Give a mixture or a list of them.",
            code="wrong_parameter",
        )
    return list(mixtures)


def _check_mixtures(mixtures: Any) -> list[Any]:
    listed = _list_mixtures(mixtures)
    for number, mixture in enumerate(listed):
        check_mixture(mixture, f"mixtures[{number}]")
    return listed


def _list_sentences(X: Any) -> Any:
    if isinstance(X, str | bytes) or not isinstance(X, Iterable):
        raise FishermixError(f"Give a list of sentences, not {X!r:.60}.", code="wrong_parameter")
    return X if isinstance(X, Sized) else list(X)
