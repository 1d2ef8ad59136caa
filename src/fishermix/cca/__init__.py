"""Regularized canonical correlation analysis at full size: up to 36,000 features on the larger side."""

from typing import TYPE_CHECKING

from fishermix import lazy

if TYPE_CHECKING:
    from fishermix.cca.covariances import CovarianceSums as CovarianceSums
    from fishermix.cca.cross_validation import PairKFold as PairKFold
    from fishermix.cca.cross_validation import choose_ridges as choose_ridges
    from fishermix.cca.estimator import RegularizedCCA as RegularizedCCA
    from fishermix.cca.grams import GramSums as GramSums

_MODULE_OF = {
    "CovarianceSums": "covariances",
    "GramSums": "grams",
    "PairKFold": "cross_validation",
    "RegularizedCCA": "estimator",
    "choose_ridges": "cross_validation",
}
__all__ = [
    "CovarianceSums",
    "GramSums",
    "PairKFold",
    "RegularizedCCA",
    "choose_ridges",
]
__getattr__ = lazy.export(__name__, _MODULE_OF)
