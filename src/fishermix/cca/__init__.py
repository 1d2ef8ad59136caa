"""Regularised canonical correlation analysis at full size: up to 36,000 features on the larger side."""

from fishermix.cca.covariances import CovarianceSums
from fishermix.cca.estimator import RegularizedCCA
from fishermix.cca.grams import GramSums

__all__ = ["CovarianceSums", "GramSums", "RegularizedCCA"]
