"""Univariate location-scale families in standardized form.

With z = (x - location) / scale, a family is its density at location 0 and scale 1:

    log f(x) = log_density(z) - log(scale)
    location_score(z) = scale * d log f / d location = -d log_density / dz
    scale_score(z)    = scale * d log f / d scale    = z * location_score(z) - 1

A custom family needs a name, `log_density`, `location_score` and `sample`. The scale score, the Fisher
informations and the IRLS weight follow from these, unless the family defines them in closed form.

A family may also have a shape parameter, such as the degrees of freedom of Student's t: see `Shape`.

EM fits a custom family by Newton's method (`m_step.ScoringFit`), whatever its shape. A family has no `fit`
method of its own, because EM sees the rows in blocks that may be on different machines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from inspect import signature
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fishermix.mixture.families.integrals import expect
from fishermix.mixture.m_step import FamilyFit, ScoringFit


class DensityForm(NamedTuple):
    """log f(z) = at_center - square z² - linear |z|: compiled loops compute such densities."""

    at_center: float
    square: float
    linear: float


class Shape(NamedTuple):
    """A shape that EM can fit: an argument of the constructor, and the ascending values that it may take.

    It is the class attribute `shape_parameter` of a family. If the argument is None, the shape is free: each
    component and dimension of a mixture chooses one of the values.

    Parameters
    ----------
    name : str
        The argument, such as "df".
    values : array of shape (n,)
        The values, ascending. Steps of a few percent are fine enough.

    Examples
    --------
    >>> from fishermix.mixture import StudentT
    >>> StudentT.shape_parameter.name, len(StudentT.shape_parameter.values)
    ('df', 401)
    >>> StudentT(df=None).has_free_shape
    True
    """

    name: str
    values: np.ndarray


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
    density_form: ClassVar[DensityForm | None] = None
    m_step: ClassVar[type[FamilyFit]] = ScoringFit  # how EM fits location and scale
    shape_parameter: ClassVar[Shape | None] = None

    @property
    def score_form(self) -> tuple[float, float] | None:
        """a and b of location_score(z) = a z + b sgn z, where sgn 0 is -1; None if the family has no form."""
        return self.density_form and (2 * self.density_form.square, self.density_form.linear)

    @property
    def has_free_shape(self) -> bool:
        """Whether EM chooses the shape of each cell."""
        return self.shape_parameter is not None and getattr(self, self.shape_parameter.name) is None

    @property
    def shape_values(self) -> np.ndarray:
        """The values that a free shape may take, ascending."""
        return (
            np.zeros(0)
            if self.shape_parameter is None
            else np.asarray(self.shape_parameter.values, np.float64)
        )

    def with_shape(self, value: Any) -> Family:
        """The family with this shape, or with an array of shapes, which broadcasts with z.

        Returns
        -------
        family : Family
        """
        assert self.shape_parameter is not None
        return type(self)(**{**self.parameters(), self.shape_parameter.name: value})

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
        return expect(self, lambda family, z: family.location_score(z) ** 2)

    @cached_property
    def scale_information(self) -> float:
        """Fisher information of the scale: E[scale_score²] under the family."""
        return expect(self, lambda family, z: family.scale_score(z) ** 2)

    @cached_property
    def shared_information(self) -> float:
        """Fisher information of location and scale together: E[location_score * scale_score].

        It is 0 for symmetric families.
        """
        return expect(self, lambda family, z: family.location_score(z) * family.scale_score(z))

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

        Where -log_density is a concave function of z² (Gaussian, logistic, Student t), a parabola of this
        curvature touches it from above, so a step to the weighted mean and deviation never lowers the
        likelihood.

        Returns
        -------
        weights : array of the shape of z
        """
        smallest = 1e-6  # at 0 the ratio is 0 / 0
        z = np.where(np.abs(z) < smallest, smallest, z)
        return self.location_score(z) / z
