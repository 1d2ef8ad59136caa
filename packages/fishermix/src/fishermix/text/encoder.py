"""`SentenceEncoder`: the scikit-learn estimator around `SentenceVectors`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone

from fishermix.errors import FishermixError
from fishermix.fisher.encoder import FisherEncoder
from fishermix.text.sentences import BLOCK_SENTENCES, SentenceVectors, Transformer, warn_if_empty
from fishermix.text.tokens import Sentence, WordLookup
from fishermix.text.word_vectors import WordVectors


class SentenceEncoder(TransformerMixin, BaseEstimator):
    """Map sentences to vectors (n, n_features) float32; `transform` needs no `fit`.

    Parameters
    ----------
    vectors : WordVectors
        The word vectors, of dimension D.
    whitening : Whitening, optional
        A fitted whitening of the word vectors.
    mixtures : list of fitted mixtures, default ()
        Mixtures over the (whitened) word vectors. Their Fisher vectors are put side by side, each normalized
        by `power` and `norm`. Without any, the vector of a sentence is the mean of its (whitened) word
        vectors, and `power` and `norm` have no effect.
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
    A clone shares the vectors, the whitening and the mixtures, fitted as they are.

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

    def fit(self, X: Any = None, y: Any = None) -> SentenceEncoder:
        """Does nothing: vectors, whitening and mixtures are fitted before.

        Returns
        -------
        self : SentenceEncoder
            The encoder, unchanged.
        """
        return self

    def set_params(self, **params: Any) -> SentenceEncoder:
        """Set parameters, except those of the whitening, because it would not be fitted again."""
        if any(name.startswith("whitening__") for name in params):
            raise FishermixError("The whitening is already fitted. Set whitening= to another one.")
        return super().set_params(**params)

    @property
    def sentence_vectors(self) -> SentenceVectors:
        """The object that computes, made of the current parameters when it is first needed."""
        if "_sentence_vectors" not in self.__dict__:
            given = self.get_params(deep=False)
            given["whitening"] = getattr(self.whitening, "whitening_", self.whitening)
            if isinstance(self.mixtures, Iterable):  # SentenceVectors reports what is not a fitted mixture
                given["mixtures"] = [getattr(mixture, "parameters_", mixture) for mixture in self.mixtures]
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
        if isinstance(X, str | bytes) or not isinstance(X, Iterable):
            raise FishermixError(f"transform takes a list of sentences, not {X!r:.60}.")
        X = X if isinstance(X, Sized) else list(X)
        out, bags = self.sentence_vectors.encode(X)
        warn_if_empty(self.sentence_vectors.count_empty(bags), len(X))
        return out

    def blocks(self, sentences: Iterable[Sentence], rows: int = BLOCK_SENTENCES) -> Iterator[np.ndarray]:
        """The rows of `transform(sentences)` in blocks of `rows`, with one block in memory at a time."""
        return self.sentence_vectors.encode_blocks(sentences, rows)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """mean_d; or, of mixture i, mixture_i_location_k_d for all k and d and then mixture_i_scale_k_d.

        The numbers of a transformer follow as transformer_d. `input_features` is ignored.
        """
        n_features = self.sentence_vectors.n_features  # checks the parameters
        if len(self.mixtures):
            of_mixtures = [FisherEncoder(mixture).get_feature_names_out() for mixture in self.mixtures]
            names = [f"mixture_{i}_{name}" for i, of in enumerate(of_mixtures) for name in of]
        else:
            names = [f"mean_{d}" for d in range(self.vectors.dimension)]
        if self.transformer is not None:
            names += [f"transformer_{d}" for d in range(n_features - len(names))]
        return np.array(names, dtype=object)

    def with_words_of(self, sentences: Iterable[Sentence], n_words: int = 0) -> SentenceEncoder:
        """An encoder with a smaller vocabulary that gives these sentences the same vectors.

        The vocabulary has all words of the sentences, including stop words, and the first of the others until
        there are `n_words`.
        """
        used = np.unique(WordLookup(self.vectors.words).find(sentences).rows)
        others = np.setdiff1d(np.arange(len(self.vectors)), used)
        kept = np.sort(np.concatenate([used, others[: max(0, n_words - len(used))]]))
        return clone(self).set_params(vectors=self.vectors[kept])

    def __sklearn_clone__(self) -> SentenceEncoder:
        # scikit-learn's clone would return its parts unfitted.
        return copy.copy(self)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.__dict__.pop("_sentence_vectors", None)

    def __getstate__(self):
        return {name: value for name, value in super().__getstate__().items() if name != "_sentence_vectors"}
