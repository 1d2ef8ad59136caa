"""Encoders that assign each row to one component: VLAD and bags of words."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from fishermix.errors import FishermixError
from fishermix.fisher.base import SetEncoder
from fishermix.fisher.fitted import fit_clone, freeze
from fishermix.fisher.vectors import apply_power, scale_blocks, scale_rows


class _HardEncoder(SetEncoder):
    """An encoder with a clusterer, whose `predict` gives the component of each row."""

    clusterer: Any
    clusterer_: Any

    @classmethod
    def from_fitted(cls, clusterer: Any, *args: Any, **options: Any) -> Self:
        """Return an encoder that uses this fitted clusterer, ready to `transform`.

        Parameters
        ----------
        clusterer : clusterer or mixture
            A fitted one. The encoder uses a copy.
        *args, **options
            The other parameters of the class.

        Returns
        -------
        encoder : as the class
            Fitting it, or a clone of it in cross-validation, does not fit the clusterer again.
        """
        encoder = cls(freeze(clusterer), *args, **options)
        encoder._check_options()
        check_is_fitted(encoder.clusterer)
        encoder._set_clusterer(encoder.clusterer)
        return encoder

    def _fit_rows(self, rows: np.ndarray, sample_weight: np.ndarray | None) -> None:
        self._set_clusterer(fit_clone(self.clusterer, rows, sample_weight, owner=self))

    def _set_clusterer(self, fitted: Any) -> None:
        is_frozen = isinstance(fitted, FrozenEstimator)
        self.clusterer_ = copy.deepcopy(fitted.estimator) if is_frozen else fitted
        self.n_features_in_ = self._centers.shape[1]

    @property
    def _centers(self) -> np.ndarray:
        """The centers (K, D) of the components."""
        for name in ("cluster_centers_", "locations_", "means_"):
            if hasattr(self.clusterer_, name):
                return np.asarray(getattr(self.clusterer_, name))
        raise FishermixError(
            f"{type(self.clusterer_).__name__} has no centers. KMeans, MiniBatchKMeans and mixtures have.",
            code="wrong_parameter",
        )

    def _assign(self, rows: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, csr_array]:
        """The component of each row (n,), and the matrix (n_sets K, n) that sums rows by these."""
        n_sets, n_components = len(offsets) - 1, len(self._centers)
        labels = self.clusterer_.predict(rows) if len(rows) else np.zeros(0, np.int64)
        groups = np.repeat(np.arange(n_sets), np.diff(offsets)) * n_components + labels
        ones = np.ones(len(rows), rows.dtype)
        return labels, csr_array((ones, (groups, np.arange(len(rows)))), (n_sets * n_components, len(rows)))


class VLADEncoder(_HardEncoder):
    """Map sets of vectors to vectors of locally aggregated descriptors (n_sets, K D).

    Block k is the sum of x - c_k over the rows x of the set that belong to component k, with the center c_k.

    Parameters
    ----------
    clusterer : clusterer or mixture
        `fit` fits a clone of it to the rows of all sets: scikit-learn's ``KMeans(64)``, or a mixture, which
        assigns a row to its most likely component. `VLADEncoder.from_fitted` or a `FrozenEstimator` uses a
        fitted one.
    power : float, default 0.5
        Exponent of the power normalization, 1 for none.
    norm : {"intra", "l2", None}, default "intra"
        "l2" scales each vector to unit length. "intra" scales each of its blocks first.

    Attributes
    ----------
    clusterer_ : clusterer or mixture
        The fitted clone, or a copy of what was given fitted.
    n_features_in_ : int
        Number of features D of the rows.

    See Also
    --------
    fishermix.FisherEncoder : soft assignment, and scales beside locations.
    fishermix.BagOfWordsEncoder : counts only.

    References
    ----------
    Jegou, Douze, Schmid, Perez (CVPR 2010), Aggregating local descriptors into a compact image
    representation.
    Arandjelovic, Zisserman (CVPR 2013), All about VLAD.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> rng = np.random.default_rng(0)
    >>> sets = [rng.normal(size=(n, 3)) for n in (50, 80)]
    >>> VLADEncoder(KMeans(4, random_state=0)).fit_transform(sets).shape
    (2, 12)
    """

    def __init__(self, clusterer: Any, power: float = 0.5, norm: str | None = "intra"):
        self.clusterer = clusterer
        self.power = power
        self.norm = norm

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """residual_k_d for every component k and dimension d. `input_features` is ignored."""
        check_is_fitted(self)
        n_components, dimension = self._centers.shape
        names = [f"residual_{k}_{d}" for k in range(n_components) for d in range(dimension)]
        return np.array(names, dtype=object)

    def _check_options(self) -> None:
        if not 0 < self.power <= 1:
            raise FishermixError(f"power={self.power} is not in (0, 1].", code="wrong_parameter")
        if self.norm not in ("intra", "l2", None):
            raise FishermixError(f"norm={self.norm!r} is not 'intra', 'l2' or None.", code="wrong_parameter")

    def _encode_rows(self, rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        labels, sums = self._assign(rows, offsets)
        centers = self._centers.astype(rows.dtype)
        out = (sums @ (rows - centers[labels])).reshape(len(offsets) - 1, centers.size)
        apply_power(out, self.power)
        if self.norm == "intra":
            scale_blocks(out, centers.shape[1])
        return out if self.norm is None else scale_rows(out)


class BagOfWordsEncoder(_HardEncoder):
    """Map sets of vectors to shares of their rows in each component, the visual words: (n_sets, K).

    Parameters
    ----------
    clusterer : clusterer or mixture
        `fit` fits a clone of it to the rows of all sets, as in `VLADEncoder`.
    norm : {"l1", "l2", None}, default "l1"
        "l1" gives shares, "l2" vectors of unit length, None counts.

    Attributes
    ----------
    clusterer_ : clusterer or mixture
        The fitted clone, or a copy of what was given fitted.
    n_features_in_ : int
        Number of features D of the rows.

    See Also
    --------
    fishermix.VLADEncoder : sums of differences in place of counts.
    sklearn.feature_extraction.text.TfidfTransformer : weighs counts of words.

    References
    ----------
    Csurka, Dance, Fan, Willamowski, Bray (ECCV workshop 2004), Visual categorization with bags of keypoints.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> rng = np.random.default_rng(0)
    >>> sets = [rng.normal(size=(n, 3)) for n in (50, 80)]
    >>> BagOfWordsEncoder(KMeans(4, random_state=0)).fit_transform(sets).sum(axis=1)
    array([1., 1.])
    """

    def __init__(self, clusterer: Any, norm: str | None = "l1"):
        self.clusterer = clusterer
        self.norm = norm

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """word_k for every component k. `input_features` is ignored."""
        check_is_fitted(self)
        return np.array([f"word_{k}" for k in range(len(self._centers))], dtype=object)

    def _check_options(self) -> None:
        if self.norm not in ("l1", "l2", None):
            raise FishermixError(f"norm={self.norm!r} is not 'l1', 'l2' or None.", code="wrong_parameter")

    def _encode_rows(self, rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        _, sums = self._assign(rows, offsets)
        counts = sums.sum(axis=1).reshape(len(offsets) - 1, len(self._centers)).astype(rows.dtype)
        if self.norm == "l1":
            counts /= np.maximum(np.diff(offsets), 1).astype(rows.dtype)[:, None]
        return scale_rows(counts) if self.norm == "l2" else counts
