"""Families of densities on the line: the base class, those that come with the package, and the registry."""

from fishermix.mixture.families.base import DensityForm, Family, Shape
from fishermix.mixture.families.builtin import Gaussian, Laplace, Logistic, StudentT
from fishermix.mixture.families.check import check_family
from fishermix.mixture.families.registry import (
    REGISTERED,
    describe_family,
    is_custom,
    make_family,
    parse_families,
    register_family,
)

__all__ = [
    "REGISTERED",
    "DensityForm",
    "Family",
    "Gaussian",
    "Laplace",
    "Logistic",
    "Shape",
    "StudentT",
    "check_family",
    "describe_family",
    "is_custom",
    "make_family",
    "parse_families",
    "register_family",
]
