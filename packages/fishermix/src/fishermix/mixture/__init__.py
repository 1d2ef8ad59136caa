"""Mixtures of location-scale families: Gaussian, Laplacian, hybrid and any other."""

from typing import TYPE_CHECKING

from fishermix import export_lazily

if TYPE_CHECKING:
    from fishermix.mixture.families import (
        Family,
        Gaussian,
        Laplace,
        Logistic,
        StudentT,
        check_family,
        register_family,
    )
    from fishermix.mixture.mixture import GaussianMixture, HybridMixture, LaplacianMixture, Mixture

__all__ = ["Family", "Gaussian", "Laplace", "Logistic", "StudentT", "check_family", "register_family"]
_MODULE_OF = dict.fromkeys(__all__, "families")
__all__ += ["GaussianMixture", "HybridMixture", "LaplacianMixture", "Mixture"]
__getattr__ = export_lazily(__name__, dict.fromkeys(__all__, "mixture") | _MODULE_OF)
