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

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any, ClassVar

import numpy as np

from fishermix.errors import FishermixError

LOG_RANGE = (-40.0, 80.0)  # of |z| in the integrals: no density of finite information has mass outside
SMALLEST_Z = 1e-6  # below it location_score(z) / z is taken at this z: both vanish at 0


class Family(ABC):
    """A symmetric or skewed density on the line, moved by a location and stretched by a scale.

    Methods take z = (x - location) / scale, an array of any shape.

    See Also
    --------
    fishermix.mixture.check_family : compares the methods of a family with each other.
    fishermix.Mixture : fits families to data.

    Examples
    --------
    >>> class Sech(Family):
    ...     name = "sech"
    ...
    ...     def log_density(self, z):
    ...         return -np.log(2 * np.cosh(np.pi / 2 * z))
    ...
    ...     def location_score(self, z):
    ...         return np.pi / 2 * np.tanh(np.pi / 2 * z)
    ...
    ...     def sample(self, rng, size):
    ...         return 2 / np.pi * np.log(np.tan(np.pi / 2 * rng.uniform(size=size)))
    >>> round(Sech().location_information, 4)  # follows from the others: pi² / 8
    1.2337
    """

    name: ClassVar[str]

    @abstractmethod
    def log_density(self, z: np.ndarray) -> np.ndarray:
        """Log density at location 0 and scale 1.

        Returns
        -------
        log_density : array of the shape of z
        """

    @abstractmethod
    def location_score(self, z: np.ndarray) -> np.ndarray:
        """-d log_density / dz.

        Returns
        -------
        scores : array of the shape of z
        """

    def scale_score(self, z: np.ndarray) -> np.ndarray:
        """z * location_score(z) - 1.

        Returns
        -------
        scores : array of the shape of z
        """
        return z * self.location_score(z) - 1

    @abstractmethod
    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw from the density at location 0 and scale 1.

        Parameters
        ----------
        rng : numpy.random.Generator
            The source of randomness.
        size : int or tuple of ints
            The shape of the result.

        Returns
        -------
        values : ndarray of the shape `size`
        """

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
        """Return the arguments of the constructor that make an equal family, as plain JSON values.

        Returns
        -------
        arguments : dict
        """
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={getattr(self, name, '?')!r}" for name in signature(type(self)).parameters)
        return f"{type(self).__name__}({given})"

    def irls_weight(self, z: np.ndarray) -> np.ndarray:
        """location_score(z) / z: the weight of a row in iteratively reweighted least squares.

        Where -log_density is a concave function of z² (Gaussian, logistic, Student t, ...), a parabola of
        this curvature touches it from above, so a step to the weighted mean and deviation never lowers
        the likelihood. For other families EM halves the steps that would.

        Returns
        -------
        weights : array of the shape of z
        """
        z = np.where(np.abs(z) < SMALLEST_Z, SMALLEST_Z, z)
        return self.location_score(z) / z


@dataclass(frozen=True)
class Gaussian(Family):
    """The Gaussian: location is the mean, scale the standard deviation.

    Examples
    --------
    >>> Gaussian().location_score(np.array([-1.0, 0.0, 2.0])).tolist()
    [-1.0, 0.0, 2.0]
    """

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

    Examples
    --------
    >>> Laplace().location_score(np.array([-1.0, 0.0, 2.0])).tolist()
    [-1.0, -1.0, 1.0]
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
    """f(z) = e^-z / (1 + e^-z)²: tails like the Laplacian's, smooth at the center.

    Examples
    --------
    >>> Logistic().location_score(np.array([0.0, 1e3])).tolist()
    [0.0, 1.0]
    """

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

    Examples
    --------
    >>> StudentT(df=4).irls_weight(np.array([0.0, 4.0])).tolist()
    [1.25, 0.25]
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


def is_custom(family: Family) -> bool:
    """Whether a user wrote the family."""
    return type(family).__module__ != __name__


def register_family(family: type[Family]) -> type[Family]:
    """Let saved mixtures name this family; also a decorator. Register it before saving and before loading.

    `check_family` checks an object of the family, if its constructor works without arguments.

    Parameters
    ----------
    family : subclass of Family
        The class to register under its `name`.

    Returns
    -------
    family : subclass of Family
        The class itself.

    Examples
    --------
    >>> @register_family
    ... class Wide(Laplace):
    ...     name = "wide"
    >>> from fishermix import Mixture
    >>> Mixture(1, families=["gaussian", "wide"]).fit([[0.0], [1.0], [5.0]]).families_
    [Gaussian(), Wide()]
    """
    if not (isinstance(family, type) and issubclass(family, Family) and hasattr(family, "name")):
        raise FishermixError(f"register_family takes a subclass of Family with a name, got {family!r}.")
    parameters = signature(family).parameters.values()
    if all(parameter.default is not parameter.empty for parameter in parameters):
        check_family(family())
    known = REGISTERED.setdefault(family.name, family)
    if known is not family and known.__qualname__ != family.__qualname__:
        raise FishermixError(f"A family named '{family.name}' is already registered. Choose another name.")
    REGISTERED[family.name] = family
    return family


def describe_family(family: Family) -> tuple[str, dict[str, Any]]:
    """Return the name and parameters of a registered family; a saved mixture never holds code."""
    if REGISTERED.get(getattr(family, "name", "")) is not type(family):
        raise FishermixError(
            f"The family {type(family).__name__} is not registered. Call "
            f"fishermix.mixture.register_family({type(family).__name__}) before saving and before loading."
        )
    return family.name, family.parameters()


def make_family(name: str, parameters: dict[str, Any]) -> Family:
    """Return the family that `describe_family` described."""
    if name not in REGISTERED:
        raise FishermixError(
            f"The saved mixture uses the family '{name}', which is not registered. Import the module that "
            "defines it and call fishermix.mixture.register_family first."
        )
    try:
        return REGISTERED[name](**parameters)
    except (TypeError, ValueError) as error:
        raise FishermixError(f"The saved parameters of the family '{name}' are invalid ({error}).") from error


def parse_families(given: Sequence[str | Family]) -> list[Family]:
    """The families that a user named or made, checked."""
    if isinstance(given, str) or not len(given):
        raise FishermixError("families must be a list such as ['gaussian', 'laplace'].")
    families: list[Family] = []
    for family in given:
        if isinstance(family, str):
            if family not in REGISTERED:
                known = ", ".join(sorted(REGISTERED))
                raise FishermixError(f"There is no family named '{family}'. Choose among: {known}.")
            family = REGISTERED[family]()
        if isinstance(family, type) and issubclass(family, Family):
            raise FishermixError(f"{family.__name__} is a class. Pass an object, {family.__name__}(...).")
        if not isinstance(family, Family):
            raise FishermixError(f"A family is a name such as 'laplace' or a Family object, got {family!r}.")
        if is_custom(family):
            check_family(family, quick=True)
        if family in families:
            raise FishermixError(f"families contains '{family.name}' twice.")
        families.append(family)
    return families


# `check_family` compares the methods of a custom family with each other: a wrong density wins every cell.

GRID = np.linspace(*LOG_RANGE, 16_001)  # of log |z|
Z = np.concatenate([-np.exp(GRID[::-1]), np.exp(GRID)])
MASS_ERROR = 1e-3  # of the integral
STEP = 1e-5  # of the finite differences, relative to max(|z|, 1)
MOST_KINKS = 0.02  # share of the probes at which the derivative may not exist
N_DRAWS = 20_000
LARGEST_GAP = 2.5 / np.sqrt(N_DRAWS)  # Kolmogorov-Smirnov; a right sampler exceeds it once in 100,000 seeds
RELATIVE_ERROR = 1e-3  # of informations and other expectations


def check_family(family: Family, *, quick: bool = False) -> None:
    """Check that the methods of a family agree with each other; raise an error that lists what is wrong.

    The density must integrate to 1, `location_score` must be the negative derivative of `log_density`,
    `scale_score` must be z * location_score(z) - 1, `sample` must draw from the density, and the informations
    must be the expected squares of the scores. `register_family` calls this function, and `fit` calls it with
    quick=True for each custom family.

    Parameters
    ----------
    family : Family
        An object of the family.
    quick : bool, default False
        Check only the density and the scores, on a grid, in about a millisecond. The other checks integrate
        the squared scores and draw 20,000 values: about 50 ms, and more if the methods are slow.

    Raises
    ------
    FishermixError
        If a method is missing or wrong. The message names each of them.

    Examples
    --------
    >>> from fishermix.mixture import Logistic
    >>> check_family(Logistic())
    """
    if not isinstance(family, Family):
        raise FishermixError(f"check_family takes an object of a subclass of Family, got {family!r}.")
    problems: list[str] = []
    with np.errstate(all="ignore"):
        for check in QUICK_CHECKS if quick else (*QUICK_CHECKS, *OTHER_CHECKS):
            try:
                problems += check(family)
            except Exception as error:
                problems.append(f"{check.__name__.removeprefix('_check_')}: {type(error).__name__}: {error}.")
            if problems and check is _check_shapes:
                break  # the other checks would only repeat it
    if problems:
        raise FishermixError(f"{type(family).__name__} is not a valid family: {' '.join(problems)}")


def _check_shapes(family: Family) -> Iterator[str]:
    if not isinstance(getattr(family, "name", None), str):
        yield 'It has no name: define name = "..." in the class.'
    for method in ("log_density", "location_score", "scale_score", "irls_weight"):
        for dtype in (np.float64, np.float32):
            found = np.asarray(getattr(family, method)(np.full((2, 3), 0.5, dtype)))
            if found.shape != (2, 3) or found.dtype.kind != "f":
                yield (
                    f"{method} must return floats of the shape of z: for (2, 3) it returned {found.dtype} of "
                    f"shape {found.shape}."
                )
                break


def _check_density(family: Family) -> Iterator[str]:
    log_density = family.log_density(Z)
    bad = Z[np.isnan(log_density) | (log_density == np.inf)]
    if len(bad):
        yield f"log_density is NaN or infinite at z = {bad[np.abs(bad).argmin()]:g}."
        return
    mass = _cumulate(family)[-1]
    if not abs(mass - 1) <= MASS_ERROR:
        yield f"The density integrates to {mass:.6g}, not to 1: subtract {np.log(mass):.6g} from log_density."


def _check_scores(family: Family) -> Iterator[str]:
    z = np.geomspace(1e-2, 30, 200) * 1.0001  # not at round numbers, where kinks are
    z = np.concatenate([-z[::-1], z])
    step = STEP * np.maximum(np.abs(z), 1)
    slope = (family.log_density(z + step) - family.log_density(z - step)) / (2 * step)
    known = np.isfinite(slope)
    z, slope, score = z[known], slope[known], family.location_score(z)[known]
    for name, found, formula, expected, allowed in (
        ("location_score", score, "-d log_density / dz", -slope, MOST_KINKS),
        ("scale_score", family.scale_score(z), "z * location_score(z) - 1", z * score - 1, 0.0),
    ):
        wrong = ~(np.abs(found - expected) <= 1e-4 * np.maximum(np.abs(expected), 1))
        if wrong.mean() > allowed:
            at = np.flatnonzero(wrong)[np.abs(z[wrong]).argmin()]
            yield f"{name}({z[at]:.4g}) is {found[at]:.6g}, but {formula} is {expected[at]:.6g} there."


def _check_information(family: Family) -> Iterator[str]:
    for name in ("location", "scale"):
        score = getattr(family, f"{name}_score")
        given = getattr(family, f"{name}_information")
        expected = _cumulate(family, score(Z) ** 2)[-1]
        if not (np.isfinite(given) and given > 0 and abs(given - expected) <= RELATIVE_ERROR * expected):
            yield (
                f"{name}_information is {given:.6g}, but the expected square of {name}_score is "
                f"{expected:.6g}."
            )


def _check_sample(family: Family) -> Iterator[str]:
    rng = np.random.default_rng(0)
    for size in (4, (2, 3)):
        if (shape := np.shape(family.sample(rng, size))) != (size if isinstance(size, tuple) else (size,)):
            yield f"sample(rng, {size}) returned the shape {shape}."
            return
    drawn = np.sort(np.asarray(family.sample(rng, N_DRAWS), np.float64))
    cumulated = _cumulate(family)
    expected = np.interp(drawn, Z, cumulated / cumulated[-1])
    place = np.arange(1, N_DRAWS + 1) / N_DRAWS
    gap = np.maximum(np.abs(place - expected), np.abs(place - 1 / N_DRAWS - expected))
    if not gap.max() <= LARGEST_GAP:
        at = int(gap.argmax())
        yield (
            f"sample does not draw from the density: {place[at]:.1%} of {N_DRAWS} draws are at most "
            f"{drawn[at]:.4g}, but the density has {expected[at]:.1%} of its mass there."
        )


def _check_parameters(family: Family) -> Iterator[str]:
    lacking = [name for name in signature(type(family)).parameters if not hasattr(family, name)]
    if lacking:
        yield (
            f"The constructor takes {', '.join(lacking)}, but the object has no such attribute, so it cannot "
            "be saved: store each argument under its name, or define parameters()."
        )


def _cumulate(family: Family, values: np.ndarray | float = 1.0) -> np.ndarray:
    """The integral of density * values up to each point of Z, by the trapezoidal rule in log |z|."""
    mass = np.nan_to_num(np.exp(family.log_density(Z) + np.log(np.abs(Z))) * values)
    parts = 0.5 * (GRID[1] - GRID[0]) * (mass[1:] + mass[:-1])
    parts[len(GRID) - 1] = 0.0  # between the two innermost points, e^-40 apart
    return np.concatenate([[0.0], np.cumsum(parts)])


QUICK_CHECKS = (_check_shapes, _check_density, _check_scores)
OTHER_CHECKS = (_check_information, _check_sample, _check_parameters)
