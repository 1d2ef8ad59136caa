"""`check_family` compares the methods of a custom family with each other: a wrong density wins every cell."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.families.base import Family
from fishermix.mixture.families.integrals import Z, cumulate, expect
from fishermix.mixture.m_step import MedianFit, MomentFit

MASS_ERROR = 1e-3  # of the integral
STEP = 1e-5  # of the finite differences, relative to max(|z|, 1)
MOST_KINKS = 0.02  # share of the probes at which the derivative may not exist
N_DRAWS = 20_000
LARGEST_GAP = 2.5 / np.sqrt(N_DRAWS)  # Kolmogorov-Smirnov; a right sampler exceeds it once in 100,000 seeds
RELATIVE_ERROR = 1e-3  # of informations and other expectations

CHECKED: set[type[Family]] = set()  # classes whose informations agree with draws


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
        raise FishermixError(
            f"check_family takes an object of a subclass of Family, got {family!r}.", code="wrong_parameter"
        )
    problems: list[str] = []
    if family.has_free_shape:
        values = family.shape_values
        problems = list(_check_shape(family, values))
        if not problems:
            for value in values[[0, len(values) // 2, -1]]:
                check_family(family.with_shape(float(value)), quick=quick)
            return
    with np.errstate(all="ignore"):
        for check in QUICK_CHECKS if quick else (*QUICK_CHECKS, *OTHER_CHECKS):
            try:
                problems += check(family)
            except Exception as error:
                problems.append(f"{check.__name__.removeprefix('_check_')}: {type(error).__name__}: {error}.")
            if problems and check in (_check_shapes, _check_sample):
                break  # the next checks would only repeat it
    if problems:
        raise FishermixError(
            f"{type(family).__name__} is not a valid family: {' '.join(problems)}", code="wrong_family"
        )


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


def _check_shape(family: Family, values: np.ndarray) -> Iterator[str]:
    """A free shape has values, and the methods take an array of them."""
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or (np.diff(values) <= 0).any():
        yield "The values of its shape must be finite and ascending."
        return
    z, some = np.array([[-2.0], [0.3], [1.5]]), values[[0, -1]]
    for method in ("log_density", "location_score", "irls_weight"):
        with np.errstate(all="ignore"):
            try:
                found = getattr(family.with_shape(some), method)(z)
                expected = np.hstack([getattr(family.with_shape(float(value)), method)(z) for value in some])
                agree = np.shape(found) == expected.shape and np.allclose(found, expected, equal_nan=True)
            except Exception as error:
                yield f"{method} with an array of shapes: {type(error).__name__}: {error}."
                return
        if not agree:
            yield f"{method} of an array of shapes differs from {method} of each of them."


def _check_density(family: Family) -> Iterator[str]:
    log_density = family.log_density(Z)
    bad = Z[np.isnan(log_density) | (log_density == np.inf)]
    if len(bad):
        yield f"log_density is NaN or infinite at z = {bad[np.abs(bad).argmin()]:g}."
        return
    mass = cumulate(family)[-1]
    if not abs(mass - 1) <= MASS_ERROR:
        yield f"The density integrates to {mass:.6g}, not to 1: subtract {np.log(mass):.6g} from log_density."


def _check_form(family: Family) -> Iterator[str]:
    """A subclass that changes the density of a family with a form has to change the form too."""
    if family.density_form is None:
        if family.m_step in (MomentFit, MedianFit):
            yield f"m_step is {family.m_step.__name__}, which fits only the Gaussian or the Laplacian."
        return
    z = np.array([-3.0, -1.5, -0.1, 0.2, 1.0, 4.0])
    at_center, square, linear = family.density_form
    if not np.allclose(family.log_density(z), at_center - square * z * z - linear * np.abs(z)):
        yield "log_density is not at_center - square z² - linear |z| of its density_form: set that to None."
    expected = {MomentFit: (0.5, 0.0), MedianFit: (0.0, 1.0)}.get(family.m_step)
    if expected and not np.allclose((square, linear), expected):
        yield f"m_step is {family.m_step.__name__}, which does not fit this density_form: use ScoringFit."


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
        given, expected = getattr(family, f"{name}_information"), _expect_square(family, f"{name}_score")
        if not (np.isfinite(given) and given > 0 and abs(given - expected) <= RELATIVE_ERROR * expected):
            yield _describe_information(
                family, name, f"the expected square of {name}_score is {expected:.6g}"
            )


def _expect_square(family: Family, name: str) -> float:
    """The mean of the square of this score under the family."""
    score = getattr(family, name)
    return expect(family, lambda _, z: score(z) ** 2)


def _check_draws(family: Family) -> Iterator[str]:
    z = np.asarray(family.sample(np.random.default_rng(1), N_DRAWS), np.float64)
    for name in ("location", "scale"):
        squares = getattr(family, f"{name}_score")(z) ** 2
        given, drawn = getattr(family, f"{name}_information"), squares.mean()
        allowed = 10 * squares.std() / np.sqrt(N_DRAWS) + 0.05 * drawn
        if not (np.isfinite(given) and abs(given - drawn) <= allowed):
            found = f"the mean square of {name}_score over {N_DRAWS:,} draws is {drawn:.4g}"
            yield _describe_information(family, name, found)


def check_informations(family: Family) -> None:
    """Compare the Fisher informations, by whose roots Fisher vectors are divided, with draws, once per class.

    A class whose `sample` is wrong cannot be checked here: `check_family` says so, and EM needs no draws.
    """
    if type(family) in CHECKED:
        return
    CHECKED.add(type(family))
    if family.has_free_shape:
        family = family.with_shape(float(family.shape_values[len(family.shape_values) // 2]))
    with np.errstate(all="ignore"):
        try:
            problems = [] if list(_check_sample(family)) else list(_check_draws(family))
        except Exception:  # of the user's `sample`
            return
    if problems:
        CHECKED.discard(type(family))
        raise FishermixError(f"{type(family).__name__}: {' '.join(problems)}", code="wrong_family")


def _describe_information(family: Family, name: str, found: str) -> str:
    information = f"{name}_information"
    value = f"{getattr(family, information):.6g}"
    if getattr(type(family), information) is not getattr(Family, information):
        return f"{information} is {value}, but {found}."
    return (
        f"fishermix computes {information} as {value}, but {found}. The class may be right: define "
        f"{information} in closed form, and please report this."
    )


def _check_sample(family: Family) -> Iterator[str]:
    rng = np.random.default_rng(0)
    for size in (4, (2, 3)):
        if (shape := np.shape(family.sample(rng, size))) != (size if isinstance(size, tuple) else (size,)):
            yield f"sample(rng, {size}) returned the shape {shape}."
            return
    drawn = np.sort(np.asarray(family.sample(rng, N_DRAWS), np.float64))
    cumulated = cumulate(family)
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


QUICK_CHECKS = (_check_shapes, _check_form, _check_density, _check_scores)
OTHER_CHECKS = (_check_information, _check_parameters, _check_sample, _check_draws)
