"""Mixtures of location-scale families: Gaussian, Laplacian, hybrid and any other."""

from typing import TYPE_CHECKING

from fishermix import export_lazily

if TYPE_CHECKING:
    from fishermix.mixture.estimator import Mixture
    from fishermix.mixture.families import (
        Family,
        Gaussian,
        Laplace,
        Logistic,
        Shape,
        StudentT,
        check_family,
        register_family,
    )
    from fishermix.mixture.named import GaussianMixture, HybridMixture, LaplacianMixture

__all__ = ["Family", "Gaussian", "Laplace", "Logistic", "Shape", "StudentT"]
__all__ += ["check_family", "register_family"]
_MODULE_OF = dict.fromkeys(__all__, "families") | {"Mixture": "estimator"}
_MODULE_OF |= dict.fromkeys(["GaussianMixture", "HybridMixture", "LaplacianMixture"], "named")
__all__ += ["GaussianMixture", "HybridMixture", "LaplacianMixture", "Mixture"]
__getattr__ = export_lazily(__name__, _MODULE_OF)
