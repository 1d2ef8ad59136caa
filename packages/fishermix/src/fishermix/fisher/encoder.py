"""`FisherEncoder`: the scikit-learn transformer of sets of vectors to Fisher vectors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fishermix.errors import FishermixError
from fishermix.fisher.base import SetEncoder
from fishermix.fisher.fitted import check_mixture, fit_mixture, freeze, own_mixture
from fishermix.fisher.vectors import FisherVectors, Options
from fishermix.mixture import Mixture
from fishermix.mixture.initialization import explain_infinite


class FisherEncoder(SetEncoder):
    """Map sets of vectors to Fisher vectors (n_sets, 2 K D).

    A Fisher vector holds the location blocks of all components, then the scale blocks, each of D numbers.
    `fishermix.fisher.reference` has the formula.

    Parameters
    ----------
    mixture : Mixture
        `fit` fits a clone of it to the rows of all sets. To use a fitted mixture as it is, call
        `FisherEncoder.from_fitted` or wrap it in `sklearn.frozen.FrozenEstimator`. scikit-learn's
        ``GaussianMixture(covariance_type="diag")`` will do as well.
    power : float, default 0.5
        Exponent of the power normalization, 1 for none.
    norm : {"l2", "intra", None}, default "l2"
        "l2" scales each Fisher vector to unit length. "intra" scales each of its blocks first.
    threshold : float, optional
        Posteriors below it count as 0; at least 0 and less than 1. None is 1e-6 for float32 rows and 1e-15
        for float64 rows, below which rounding hides them.
    weight_gradients : bool, default False
        Append K gradients by the weights of the components. The paper does not use them.

    Attributes
    ----------
    mixture_ : Mixture
        The fitted clone, or a copy of the mixture that was given fitted.
    n_features_in_ : int
        Number of features D of the rows.

    See Also
    --------
    fishermix.OnRows : applies a transformer, such as PCA, to the rows of sets.
    fishermix.SentenceEncoder : Fisher vectors of the words of sentences.
    sklearn.frozen.FrozenEstimator : keeps a fitted estimator as it is.

    References
    ----------
    Klein, Lev, Sadeh, Wolf (CVPR 2015), Associating Neural Word Embeddings with Deep Image Representations
    using Fisher Vectors; arXiv:1411.7399.
    Perronnin, Sanchez, Mensink (ECCV 2010), Improving the Fisher kernel for large-scale image classification.
    Sanchez, Perronnin, Mensink, Verbeek (IJCV 2013), Image classification with the Fisher vector: theory and
    practice; the gradients by the weights.
    Arandjelovic, Zisserman (CVPR 2013), All about VLAD; intra-normalization.

    Examples
    --------
    >>> from fishermix import GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> sets = [rng.normal(size=(n, 3)) for n in (50, 80)]
    >>> FisherEncoder(GaussianMixture(2, random_state=0)).fit_transform(sets).shape
    (2, 12)
    """

    mixture_: Mixture
    n_features_in_: int

    def __init__(
        self,
        mixture: Mixture,
        power: float = 0.5,
        norm: str | None = "l2",
        *,
        threshold: float | None = None,
        weight_gradients: bool = False,
    ):
        self.mixture = mixture
        self.power = power
        self.norm = norm
        self.threshold = threshold
        self.weight_gradients = weight_gradients

    @classmethod
    def from_fitted(cls, mixture: Any, *args: Any, **options: Any) -> Self:
        """Return an encoder that uses this fitted mixture, ready to `transform`.

        Parameters
        ----------
        mixture : Mixture
            A fitted mixture, or a fitted ``GaussianMixture(covariance_type="diag")`` of scikit-learn, such as
            `skimage.feature.learn_gmm` returns.
        *args, **options
            The other parameters of `FisherEncoder`.

        Returns
        -------
        encoder : FisherEncoder
            Its `mixture_` is a copy, so later fits of the mixture do not change the encoder. Fitting the
            encoder, or a clone of it in cross-validation, does not fit the mixture again.

        Examples
        --------
        >>> from fishermix import GaussianMixture
        >>> rng = np.random.default_rng(0)
        >>> mixture = GaussianMixture(2, random_state=0).fit(rng.normal(size=(100, 3)))
        >>> FisherEncoder.from_fitted(mixture, power=1).transform([rng.normal(size=(5, 3))]).shape
        (1, 12)
        """
        encoder = cls(freeze(mixture), *args, **options)
        encoder._check_options()
        encoder._set_mixture(own_mixture(encoder.mixture))
        return encoder

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """location_k_d for every component k and dimension d, then scale_k_d; weight_k, if there are any.

        `input_features`, names of the columns of the rows, do not appear in the result, but must be D.
        """
        check_is_fitted(self)
        dimension = self.n_features_in_
        if input_features is not None and len(input_features) != dimension:
            raise ValueError(f"input_features should have length {dimension}, got {len(input_features)}.")
        names = self._vectors.feature_names
        if self.weight_gradients:
            names = names + [f"weight_{k}" for k in range(len(self.mixture_.weights_))]
        return np.array(names, dtype=object)

    def _fit_rows(self, rows: np.ndarray, sample_weight: np.ndarray | None) -> None:
        self._set_mixture(fit_mixture(self.mixture, rows, sample_weight, owner=self))

    def _set_mixture(self, fitted: Mixture) -> None:
        self.mixture_ = fitted
        self.n_features_in_ = self.mixture_.n_features_in_
        self._vectors = FisherVectors(self.mixture_._parameters)

    def _encode_rows(self, rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        options = Options(self.power, self.norm, self.threshold, self.weight_gradients)
        out = self._vectors.encode(rows, offsets, options)
        if not np.isfinite(out).all():
            raise explain_infinite(rows)
        return out

    def _check_options(self) -> None:
        check_mixture(self.mixture)
        if not 0 < self.power <= 1:
            raise FishermixError(f"power={self.power} is not in (0, 1].", code="wrong_parameter")
        if self.norm not in ("l2", "intra", None):
            raise FishermixError(f"norm={self.norm!r} is not 'l2', 'intra' or None.", code="wrong_parameter")
        if self.threshold is not None and not 0 <= self.threshold < 1:
            raise FishermixError(
                f"threshold={self.threshold} is not in [0, 1), the range of posteriors.",
                code="wrong_parameter",
            )
