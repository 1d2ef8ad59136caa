"""Mixtures of location-scale families: Gaussian, Laplacian, hybrid and any other."""

from fishermix.mixture.families import (
    Family,
    Gaussian,
    Laplace,
    Logistic,
    StudentT,
    register_family,
)
from fishermix.mixture.mixture import GaussianMixture, HybridMixture, LaplacianMixture, Mixture

__all__ = [
    "Family",
    "Gaussian",
    "GaussianMixture",
    "HybridMixture",
    "Laplace",
    "LaplacianMixture",
    "Logistic",
    "Mixture",
    "StudentT",
    "register_family",
]
