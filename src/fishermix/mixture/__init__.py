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
    from fishermix.mixture.convert import from_sklearn as from_sklearn
    from fishermix.mixture.family_check import check_family as check_family
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
    "check_family",
    "from_sklearn",
    "register_family",
]


_MODULE_OF = {
    "GaussianMixture": "mixture",
    "HybridMixture": "mixture",
    "LaplacianMixture": "mixture",
    "Mixture": "mixture",
    "check_family": "family_check",
    "from_sklearn": "convert",
}


def __getattr__(name: str):
    # Imported on first use: a search knows its families without scikit-learn and a compiler.
    if name in _MODULE_OF:
        return getattr(import_module(f"fishermix.mixture.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'fishermix.mixture' has no attribute '{name}'")
