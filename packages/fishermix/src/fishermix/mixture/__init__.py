"""Mixtures of location-scale families: Gaussian, Laplacian, hybrid and any other."""

from typing import TYPE_CHECKING

from fishermix.runtime import export_lazily

if TYPE_CHECKING:
    from fishermix.mixture.convert import from_sklearn as from_sklearn
    from fishermix.mixture.families import Family as Family
    from fishermix.mixture.families import Gaussian as Gaussian
    from fishermix.mixture.families import Laplace as Laplace
    from fishermix.mixture.families import Logistic as Logistic
    from fishermix.mixture.families import StudentT as StudentT
    from fishermix.mixture.families import register_family as register_family
    from fishermix.mixture.family_check import check_family as check_family
    from fishermix.mixture.mixture import GaussianMixture as GaussianMixture
    from fishermix.mixture.mixture import HybridMixture as HybridMixture
    from fishermix.mixture.mixture import LaplacianMixture as LaplacianMixture
    from fishermix.mixture.mixture import Mixture as Mixture

_MODULE_OF = {
    "Family": "families",
    "Gaussian": "families",
    "GaussianMixture": "mixture",
    "HybridMixture": "mixture",
    "Laplace": "families",
    "LaplacianMixture": "mixture",
    "Logistic": "families",
    "Mixture": "mixture",
    "StudentT": "families",
    "check_family": "family_check",
    "from_sklearn": "convert",
    "register_family": "families",
}
__all__ = list(_MODULE_OF)
__getattr__ = export_lazily(__name__, _MODULE_OF)
