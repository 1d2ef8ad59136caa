"""The families that come with the package: Gaussian, Laplacian, logistic and Student's t."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.families.base import DensityForm, Family, Shape
from fishermix.mixture.m_step import FamilyFit, IRLSFit, MedianFit, MomentFit


@dataclass(frozen=True)
class Gaussian(Family):
    """The Gaussian: location is the mean, scale the standard deviation.

    Examples
    --------
    >>> Gaussian().location_score(np.array([-1.0, 0.0, 2.0])).tolist()
    [-1.0, 0.0, 2.0]
    """

    name: ClassVar[str] = "gaussian"
    density_form: ClassVar[DensityForm] = DensityForm(-0.5 * np.log(2 * np.pi), square=0.5, linear=0.0)
    m_step: ClassVar[type[FamilyFit]] = MomentFit
    location_information = 1.0
    scale_information = 2.0

    def log_density(self, z: np.ndarray) -> np.ndarray:
        return -0.5 * (np.log(2 * np.pi) + z * z)

    def location_score(self, z: np.ndarray) -> np.ndarray:
        return z

    def irls_weight(self, z: np.ndarray) -> np.ndarray:
        return np.ones_like(z)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        return rng.standard_normal(size)


@dataclass(frozen=True)
class Laplace(Family):
    """The Laplacian: location is the median, scale the mean absolute deviation from it.

    A point on the median counts as below it, as in the paper.

    Examples
    --------
    >>> Laplace().location_score(np.array([-1.0, 0.0, 2.0])).tolist()
    [-1.0, -1.0, 1.0]
    """

    name: ClassVar[str] = "laplace"
    density_form: ClassVar[DensityForm] = DensityForm(-np.log(2.0), square=0.0, linear=1.0)
    m_step: ClassVar[type[FamilyFit]] = MedianFit
    location_information = 1.0
    scale_information = 1.0

    def log_density(self, z: np.ndarray) -> np.ndarray:
        return -np.log(2.0) - np.abs(z)

    def location_score(self, z: np.ndarray) -> np.ndarray:
        return np.where(z > 0, 1.0, -1.0).astype(np.result_type(z, np.float32), copy=False)

    def scale_score(self, z: np.ndarray) -> np.ndarray:
        return np.abs(z) - 1

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        return rng.laplace(size=size)


@dataclass(frozen=True)
class Logistic(Family):
    """f(z) = e^-z / (1 + e^-z)²: tails like the Laplacian's, smooth at the center.

    Examples
    --------
    >>> Logistic().location_score(np.array([0.0, 1e3])).tolist()
    [0.0, 1.0]
    """

    name: ClassVar[str] = "logistic"
    m_step: ClassVar[type[FamilyFit]] = IRLSFit
    location_information = 1 / 3
    scale_information = (np.pi**2 + 3) / 9

    def log_density(self, z: np.ndarray) -> np.ndarray:
        a = np.abs(z)
        return -a - 2 * np.log1p(np.exp(-a))

    def location_score(self, z: np.ndarray) -> np.ndarray:
        return np.tanh(0.5 * z)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        return rng.logistic(size=size)


@dataclass(frozen=True)
class StudentT(Family):
    """Student's t with `df` > 0 degrees of freedom: the farther out a point, the less it weighs.

    Parameters
    ----------
    df : float, optional
        Degrees of freedom, above 0. Heavier tails for smaller values. None lets EM choose them for each
        component and dimension, among 401 values from 0.1 to 1,000.

    Examples
    --------
    >>> StudentT(df=4).irls_weight(np.array([0.0, 4.0])).tolist()
    [1.25, 0.25]
    """

    df: Any = 4.0
    name: ClassVar[str] = "student-t"
    m_step: ClassVar[type[FamilyFit]] = IRLSFit
    shape_parameter: ClassVar[Shape] = Shape("df", np.geomspace(0.1, 1000, 401))

    def __post_init__(self) -> None:
        df = np.asarray(1.0 if self.df is None else self.df)
        if df.dtype.kind not in "iuf" or not (np.isfinite(df) & (df > 0)).all():
            raise FishermixError(
                f"StudentT needs a positive number of degrees of freedom, got df={self.df}.",
                code="wrong_parameter",
            )

    def log_density(self, z: np.ndarray) -> np.ndarray:
        from scipy.special import gammaln  # slow to import

        half = (self.df + 1) / 2
        constant = gammaln(half) - gammaln(self.df / 2) - 0.5 * np.log(self.df * np.pi)
        constant = constant if np.ndim(constant) else float(constant)  # a Python number keeps float32
        return constant - half * np.log1p(z * z / self.df)

    def location_score(self, z: np.ndarray) -> np.ndarray:
        return z * self.irls_weight(z)

    def irls_weight(self, z: np.ndarray) -> np.ndarray:
        return (self.df + 1) / (self.df + z * z)

    @property
    def location_information(self) -> float:
        return (self.df + 1) / (self.df + 3)

    @property
    def scale_information(self) -> float:
        return 2 * self.df / (self.df + 3)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        return rng.standard_t(self.df, size=size)
