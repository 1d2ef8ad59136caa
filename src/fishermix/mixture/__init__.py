"""Mixtures of location-scale families: Gaussian, Laplacian, hybrid and any other."""

from importlib import import_module
from typing import TYPE_CHECKING

from fishermix.mixture.families import (
    Family,
    Gaussian,
    Laplace,
    Logistic,
    StudentT,
    register_family,
)

if TYPE_CHECKING:
    from fishermix.mixture.mixture import GaussianMixture as GaussianMixture
    from fishermix.mixture.mixture import HybridMixture as HybridMixture
    from fishermix.mixture.mixture import LaplacianMixture as LaplacianMixture
    from fishermix.mixture.mixture import Mixture as Mixture

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


def __getattr__(name: str):
    # Imported on first use: a search knows its families without scikit-learn and a compiler.
    if name in ("GaussianMixture", "HybridMixture", "LaplacianMixture", "Mixture"):
        return getattr(import_module("fishermix.mixture.mixture"), name)
    raise AttributeError(f"module 'fishermix.mixture' has no attribute '{name}'")
