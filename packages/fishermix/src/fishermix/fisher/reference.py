"""The Fisher vector of the paper in a dozen lines of numpy. Read this first: the rest is speed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from fishermix.errors import FishermixError


def fisher_vector(X: ArrayLike, mixture: Any, power: float = 0.5, norm: str | None = "l2") -> np.ndarray:
    """Return the Fisher vector (2 K D,) of one set of vectors X (N, D), of which there must be at least one.

    It is the gradient of the log likelihood of X by the locations and the scales of a fitted `Mixture` with K
    components. Each coordinate is divided by its standard deviation over sets of N vectors, the square root
    of N times its Fisher information. Then come the signed power and the normalization.

    Examples
    --------
    >>> from fishermix import FisherEncoder, HybridMixture
    >>> rng = np.random.default_rng(0)
    >>> mixture = HybridMixture(2, random_state=0).fit(rng.laplace(size=(100, 3)))
    >>> X = rng.laplace(size=(5, 3))
    >>> np.allclose(fisher_vector(X, mixture), FisherEncoder.from_fitted(mixture).transform([X])[0])
    True
    """
    if norm not in ("l2", "intra", None):
        raise FishermixError(f"norm={norm!r} is not 'l2', 'intra' or None.", code="wrong_parameter")
    z = (np.asarray(X)[:, None, :] - mixture.locations_) / mixture.scales_  # (N, K, D)
    log_densities, location_scores, scale_scores = np.empty((3, *z.shape))
    for index, family in enumerate(mixture.families_):
        chosen = mixture.choice_ == index  # (K, D)
        if family.has_free_shape:
            family = family.with_shape(mixture.shapes_[chosen])
        log_densities[:, chosen] = family.log_density(z[:, chosen]) - np.log(mixture.scales_[chosen])
        location_scores[:, chosen] = family.location_score(z[:, chosen]) / family.location_information**0.5
        scale_scores[:, chosen] = family.scale_score(z[:, chosen]) / family.scale_information**0.5
    posteriors = softmax(np.log(mixture.weights_) + log_densities.sum(axis=2), axis=1)  # (N, K)

    gradients = np.einsum("nk,hnkd->hkd", posteriors, np.array([location_scores, scale_scores]))
    vector = (gradients / np.sqrt(len(z) * mixture.weights_[:, None])).ravel()
    vector = np.sign(vector) * np.abs(vector) ** power
    if norm == "intra":
        blocks = vector.reshape(-1, z.shape[2])
        vector = (blocks / np.maximum(np.linalg.norm(blocks, axis=1, keepdims=True), 1e-12)).ravel()
    return vector if norm is None else vector / np.linalg.norm(vector)
