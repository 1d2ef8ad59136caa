"""Univariate location-scale families in standardized form.

With z = (x - location) / scale, a family is its density at location 0 and scale 1:

    log f(x) = log_density(z) - log(scale)
    location_score(z) = scale * d log f / d location = -d log_density / dz
    scale_score(z)    = scale * d log f / d scale    = z * location_score(z) - 1

A custom family needs a name, `log_density`, `location_score` and `sample`. The scale score, the Fisher
informations and the IRLS weight follow from these, unless the family defines them in closed form.

EM fits a custom family by iteratively reweighted least squares (`m_step.IRLSFit`): `irls_weight` decides how.
A family has no `fit` method of its own, because EM sees the rows in blocks that may be on different machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any, ClassVar

import numpy as np

from fishermix.errors import FishermixError

LOG_RANGE = (-40.0, 80.0)  # of |z| in the integrals: no density of finite information has mass outside
SMALLEST_Z = 1e-6  # below it location_score(z) / z is taken at this z: both vanish at 0


class Family:
    """A symmetric or skewed density on the line, moved by a location and stretched by a scale.

    Methods take and return arrays of any shape.
    """

    name: ClassVar[str]

    def log_density(self, z: np.ndarray) -> np.ndarray:
        """Log density at location 0 and scale 1.

        Parameters
        ----------
        z : array
            (x - location) / scale, of any shape.
        """
        raise self._lacks("log_density(self, z)")

    def location_score(self, z: np.ndarray) -> np.ndarray:
        """-d log_density / dz.

        Parameters
        ----------
        z : array
            (x - location) / scale, of any shape.
        """
        raise self._lacks("location_score(self, z)")

    def scale_score(self, z: np.ndarray) -> np.ndarray:
        """z * location_score(z) - 1.

        Parameters
        ----------
        z : array
            (x - location) / scale, of any shape.
        """
        return z * self.location_score(z) - 1

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw from the density at location 0 and scale 1.

        Parameters
        ----------
        rng : numpy.random.Generator
            The source of randomness.
        size : int or tuple of ints
            The shape of the result.
        """
        raise self._lacks("sample(self, rng, size)")

    def _lacks(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"The family {type(self).__name__} must define {method}.")

    @cached_property
    def location_information(self) -> float:
        """Fisher information of the location: E[location_score²] under the family."""
        return self._expectation(lambda z: self.location_score(z) ** 2)

    @cached_property
    def scale_information(self) -> float:
        """Fisher information of the scale: E[scale_score²] under the family."""
        return self._expectation(lambda z: self.scale_score(z) ** 2)

    def _expectation(self, of) -> float:
        from scipy.integrate import quad  # slow to import, and only custom families need it

        # Substituting z = ±e^u suits thin and heavy tails alike.
        def integrand(u: float, sign: float) -> float:
            z = np.array([sign * np.exp(u)])
            return float((np.exp(self.log_density(z) + u) * of(z))[0])

        with np.errstate(all="ignore"):
            halves = [
                quad(lambda u, s=sign: np.nan_to_num(integrand(u, s)), *LOG_RANGE, limit=400)[0]
                for sign in (-1.0, 1.0)
            ]
        return float(sum(halves))

    def parameters(self) -> dict[str, Any]:
        """Return the arguments of the constructor that make an equal family, as plain JSON values."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={getattr(self, name, '?')!r}" for name in signature(type(self)).parameters)
        return f"{type(self).__name__}({given})"

    def irls_weight(self, z: np.ndarray) -> np.ndarray:
        """location_score(z) / z: the weight of a row in iteratively reweighted least squares.

        Where -log_density is a concave function of z² (Gaussian, logistic, Student t, ...), a parabola of
        this curvature touches it from above, so a step to the weighted mean and deviation never lowers
        the likelihood. For other families EM halves the steps that would.

        Parameters
        ----------
        z : array
            (x - location) / scale, of any shape.
        """
        z = np.where(np.abs(z) < SMALLEST_Z, SMALLEST_Z, z)
        return self.location_score(z) / z


@dataclass(frozen=True)
class Gaussian(Family):
    """The Gaussian: location is the mean, scale the standard deviation."""

    name: ClassVar[str] = "gaussian"
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
    """

    name: ClassVar[str] = "laplace"
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
    """f(z) = e^-z / (1 + e^-z)²: tails like the Laplacian's, smooth at the center."""

    name: ClassVar[str] = "logistic"
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
    df : float
        Degrees of freedom, above 0. Heavier tails for smaller values.
    """

    df: float = 4.0
    name: ClassVar[str] = "student-t"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.df) and self.df > 0):
            raise FishermixError(f"StudentT needs a positive number of degrees of freedom, got df={self.df}.")

    def log_density(self, z: np.ndarray) -> np.ndarray:
        from scipy.special import gammaln  # slow to import

        half = (self.df + 1) / 2
        constant = gammaln(half) - gammaln(self.df / 2) - 0.5 * np.log(self.df * np.pi)
        return float(constant) - half * np.log1p(z * z / self.df)

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


REGISTERED: dict[str, type[Family]] = {
    family.name: family for family in (Gaussian, Laplace, Logistic, StudentT)
}


def register_family(family: type[Family]) -> type[Family]:
    """Let saved mixtures name this family; also a decorator. Register it before saving and before loading.

    `check_family` checks an object of the family, if its constructor works without arguments.

    Parameters
    ----------
    family : subclass of Family
        The class to register under its `name`.
    """
    if not (isinstance(family, type) and issubclass(family, Family) and hasattr(family, "name")):
        raise FishermixError(f"register_family takes a subclass of Family with a name, got {family!r}.")
    parameters = signature(family).parameters.values()
    if all(parameter.default is not parameter.empty for parameter in parameters):
        from fishermix.mixture.family_check import check_family

        check_family(family())
    known = REGISTERED.setdefault(family.name, family)
    if known is not family and known.__qualname__ != family.__qualname__:
        raise FishermixError(f"A family named '{family.name}' is already registered. Choose another name.")
    REGISTERED[family.name] = family
    return family
