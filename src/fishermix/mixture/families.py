"""Univariate location-scale families, in standardised form.

With z = (x - location) / scale, a family is its density at location 0 and scale 1:

    log f(x) = log_density(z) - log(scale)
    location_score(z) = scale * d log f / d location = -d log_density / dz
    scale_score(z)    = scale * d log f / d scale    = z * location_score(z) - 1

so a family of one's own needs a name, `log_density`, `location_score` and `sample`; scores by scale, Fisher
informations and the weighted fit follow from these. The built-in ones write closed forms out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any, ClassVar

import numpy as np

from fishermix.errors import FishermixError

LARGEST_LOG_SCALE = 80.0  # e^80 scales away from the centre no density of finite information holds mass


class Family:
    """A symmetric or skewed density on the line, moved by a location and stretched by a scale."""

    name: ClassVar[str]

    def log_density(self, z: np.ndarray) -> np.ndarray:
        """Log density at location 0, scale 1; any shape."""
        raise NotImplementedError

    def location_score(self, z: np.ndarray) -> np.ndarray:
        """-d log_density / dz; any shape."""
        raise NotImplementedError

    def scale_score(self, z: np.ndarray) -> np.ndarray:
        """z * location_score(z) - 1; any shape."""
        return z * self.location_score(z) - 1

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        """Standardised draws."""
        raise NotImplementedError

    @cached_property
    def location_information(self) -> float:
        """E[location_score²] under the family itself."""
        return self._expectation(lambda z: self.location_score(z) ** 2)

    @cached_property
    def scale_information(self) -> float:
        """E[scale_score²] under the family itself."""
        return self._expectation(lambda z: self.scale_score(z) ** 2)

    def _expectation(self, of) -> float:
        from scipy.integrate import quad  # slow to import, and only families of one's own need it

        # z = ±e^u lets one rule serve thin and heavy tails alike.
        def integrand(u: float, sign: float) -> float:
            z = np.array([sign * np.exp(u)])
            return float((np.exp(self.log_density(z) + u) * of(z))[0])

        with np.errstate(all="ignore"):
            halves = [
                quad(lambda u, s=sign: np.nan_to_num(integrand(u, s)), -40, LARGEST_LOG_SCALE, limit=400)[0]
                for sign in (-1.0, 1.0)
            ]
        return float(sum(halves))

    def parameters(self) -> dict[str, Any]:
        """What the constructor takes to make an equal family again (plain JSON values)."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def curvature(self, z: np.ndarray) -> np.ndarray:
        """location_score(z) / z, the weight that makes a least-squares step of a likelihood step; any shape.

        Where -log_density is a concave function of z² (Gaussian, logistic, Student t, ...) it is touched from
        above by a parabola of this curvature, so that a step to the weighted mean and deviation never lowers
        the likelihood.
        """
        z = np.where(np.abs(z) < 1e-6, 1e-6, z)
        return self.location_score(z) / z

    def fit(self, x: np.ndarray, weight: np.ndarray, steps: int = 200) -> tuple[np.ndarray, np.ndarray]:
        """Weighted maximum-likelihood location and scale, each (D,), of the columns of x (n, D)."""
        total = weight.sum()
        location = weight @ x / total
        scale = np.sqrt(weight @ (x - location) ** 2 / total)
        scale = np.where(scale > 0, scale, 1.0)
        for _ in range(steps):
            step = weight[:, None] * self.curvature((x - location) / scale)
            location = (step * x).sum(0) / step.sum(0)
            scale = np.sqrt((step * (x - location) ** 2).sum(0) / total)
            scale = np.where(scale > 0, scale, np.finfo(float).tiny)
        return location, scale


@dataclass(frozen=True)
class Gaussian(Family):
    """Mean and standard deviation."""

    name: ClassVar[str] = "gaussian"
    location_information = 1.0
    scale_information = 2.0

    def log_density(self, z: np.ndarray) -> np.ndarray:
        return -0.5 * (np.log(2 * np.pi) + z * z)

    def location_score(self, z: np.ndarray) -> np.ndarray:
        return z

    def curvature(self, z: np.ndarray) -> np.ndarray:
        return np.ones_like(z)

    def fit(self, x: np.ndarray, weight: np.ndarray, steps: int = 1) -> tuple[np.ndarray, np.ndarray]:
        location = weight @ x / weight.sum()
        return location, np.sqrt(weight @ (x - location) ** 2 / weight.sum())

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        return rng.standard_normal(size)


@dataclass(frozen=True)
class Laplace(Family):
    """Median and mean absolute deviation. A point on the median counts as below it, as in the paper."""

    name: ClassVar[str] = "laplace"
    location_information = 1.0
    scale_information = 1.0

    def log_density(self, z: np.ndarray) -> np.ndarray:
        return -np.log(2.0) - np.abs(z)

    def location_score(self, z: np.ndarray) -> np.ndarray:
        return np.where(z > 0, 1.0, -1.0).astype(np.result_type(z, np.float32), copy=False)

    def scale_score(self, z: np.ndarray) -> np.ndarray:
        return np.abs(z) - 1

    def fit(self, x: np.ndarray, weight: np.ndarray, steps: int = 1) -> tuple[np.ndarray, np.ndarray]:
        from fishermix.mixture.weighted_median import weighted_median  # brings the compiler

        location = weighted_median(x, weight)
        return location, weight @ np.abs(x - location) / weight.sum()

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        return rng.laplace(size=size)


@dataclass(frozen=True)
class Logistic(Family):
    """f(z) = e^-z / (1 + e^-z)²: tails like the Laplacian's, smooth at the centre."""

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
    """Student's t with `df` > 0 degrees of freedom: outliers weigh less and less."""

    df: float = 4.0
    name: ClassVar[str] = "student-t"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.df) and self.df > 0):
            raise FishermixError(f"StudentT needs a positive number of degrees of freedom, not df={self.df}")

    def log_density(self, z: np.ndarray) -> np.ndarray:
        from scipy.special import gammaln  # slow to import

        half = (self.df + 1) / 2
        constant = gammaln(half) - gammaln(self.df / 2) - 0.5 * np.log(self.df * np.pi)
        return float(constant) - half * np.log1p(z * z / self.df)

    def location_score(self, z: np.ndarray) -> np.ndarray:
        return z * self.curvature(z)

    def curvature(self, z: np.ndarray) -> np.ndarray:
        return (self.df + 1) / (self.df + z * z)

    @property
    def location_information(self) -> float:
        return (self.df + 1) / (self.df + 3)

    @property
    def scale_information(self) -> float:
        return 2 * self.df / (self.df + 3)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        return rng.standard_t(self.df, size=size)


_REGISTERED: dict[str, type[Family]] = {
    family.name: family for family in (Gaussian, Laplace, Logistic, StudentT)
}


def register_family(family: type[Family]) -> type[Family]:
    """Let saved mixtures name this family (also as a decorator); register it again before a load."""
    if not (isinstance(family, type) and issubclass(family, Family) and hasattr(family, "name")):
        raise FishermixError(f"register_family takes a class derived from Family with a name, not {family!r}")
    known = _REGISTERED.setdefault(family.name, family)
    if known is not family and known.__qualname__ != family.__qualname__:
        raise FishermixError(f"a family called '{family.name}' is registered already: choose another name")
    _REGISTERED[family.name] = family
    return family


def family_to_config(family: Family) -> dict[str, Any]:
    """Name and parameters of a registered family; a saved mixture never holds code."""
    if _REGISTERED.get(getattr(family, "name", "")) is not type(family):
        raise FishermixError(
            f"the family {type(family).__name__} is not registered, and code is never saved: call "
            f"fishermix.mixture.register_family({type(family).__name__}) before saving and before loading"
        )
    return {"name": family.name, "parameters": family.parameters()}


def family_from_config(config: Any) -> Family:
    """The family that `family_to_config` described."""
    name = config.get("name") if isinstance(config, dict) else None
    if not isinstance(name, str) or name not in _REGISTERED:
        raise FishermixError(
            f"the saved mixture uses the family '{name}', which is not registered: "
            "import the module that defines it and call fishermix.mixture.register_family first"
        )
    try:
        return _REGISTERED[name](**config.get("parameters", {}))
    except TypeError as error:
        raise FishermixError(f"the saved parameters of the family '{name}' do not fit it: {error}") from error


def as_family(family: str | Family) -> Family:
    """A family from its object or from its name, such as "laplace"."""
    if isinstance(family, str):
        if family not in _REGISTERED:
            raise FishermixError(
                f"there is no family called '{family}'; there are: {', '.join(sorted(_REGISTERED))}"
            )
        return _REGISTERED[family]()
    if isinstance(family, type) and issubclass(family, Family):
        raise FishermixError(f"{family.__name__} is a class: offer an object of it, {family.__name__}(...)")
    if not isinstance(family, Family):
        raise FishermixError(f"a family is a name such as 'laplace' or a Family object, not {family!r}")
    return family
