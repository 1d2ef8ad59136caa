"""`check_family` compares the methods of a custom family with each other: a wrong density wins every cell."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.families import LOG_RANGE, Family

NEEDED = {
    "log_density": "log_density(self, z), the log density at location 0 and scale 1",
    "location_score": "location_score(self, z), which is -d log_density / dz",
    "sample": "sample(self, rng, size), which draws from the density at location 0 and scale 1",
}
GRID = np.linspace(*LOG_RANGE, 16_001)  # of log |z|
Z = np.concatenate([-np.exp(GRID[::-1]), np.exp(GRID)])
MASS_ERROR = {True: 1e-2, False: 1e-4}  # of the integral, quick or not
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
        Check only the density and the scores, on a grid; this takes a few milliseconds.

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
    problems = list(_find_missing(family, quick))
    if not problems:
        with np.errstate(all="ignore"):
            for check in QUICK_CHECKS if quick else (*QUICK_CHECKS, *OTHER_CHECKS):
                problems += _run(check, family, quick)
                if problems and check is _check_shapes:
                    break  # the other checks would only repeat it
    if problems:
        raise FishermixError(f"{type(family).__name__} is not a valid family: {' '.join(problems)}")


def _run(check: Callable[[Family, bool], Iterator[str]], family: Family, quick: bool) -> list[str]:
    try:
        return list(check(family, quick))
    except Exception as error:
        return [f"{check.__name__.removeprefix('_check_')}: {type(error).__name__}: {error}."]


def _find_missing(family: Family, quick: bool) -> Iterator[str]:
    if not isinstance(getattr(family, "name", None), str):
        yield 'It has no name: define name = "..." in the class.'
    for method, wanted in NEEDED.items():
        if getattr(type(family), method) is getattr(Family, method) and not (quick and method == "sample"):
            yield f"It has no {method}: define {wanted}."


def _check_shapes(family: Family, quick: bool) -> Iterator[str]:
    for method in ("log_density", "location_score", "scale_score", "irls_weight"):
        for dtype in (np.float64, np.float32):
            found = np.asarray(getattr(family, method)(np.full((2, 3), 0.5, dtype)))
            if found.shape != (2, 3) or found.dtype.kind != "f":
                yield (
                    f"{method} must return floats of the shape of z: for (2, 3) it returned {found.dtype} of "
                    f"shape {found.shape}."
                )
                break


def _check_density(family: Family, quick: bool) -> Iterator[str]:
    log_density = family.log_density(Z)
    bad = Z[np.isnan(log_density) | (log_density == np.inf)]
    if len(bad):
        yield f"log_density is NaN or infinite at z = {bad[np.abs(bad).argmin()]:g}."
        return
    mass = _cumulate(family)[-1]
    if not abs(mass - 1) <= MASS_ERROR[quick]:
        yield f"The density integrates to {mass:.6g}, not to 1: subtract {np.log(mass):.6g} from log_density."


def _check_scores(family: Family, quick: bool) -> Iterator[str]:
    z = _both_sides(np.geomspace(1e-2, 30, 200) * 1.0001)  # not at round numbers, where kinks are
    step = STEP * np.maximum(np.abs(z), 1)
    slope = (family.log_density(z + step) - family.log_density(z - step)) / (2 * step)
    known = np.isfinite(slope)
    z, slope, score = z[known], slope[known], family.location_score(z)[known]
    wrong = ~(np.abs(score + slope) <= 1e-4 * np.maximum(np.abs(slope), 1))
    if wrong.mean() > MOST_KINKS:
        at = np.flatnonzero(wrong)[np.abs(z[wrong]).argmin()]
        yield (
            f"location_score({z[at]:.4g}) is {score[at]:.6g}, but -d log_density / dz is {-slope[at]:.6g} "
            "there."
        )
    expected = z * score - 1
    scale_score = family.scale_score(z)
    wrong = ~(np.abs(scale_score - expected) <= 1e-4 * np.maximum(np.abs(expected), 1))
    if wrong.any():
        at = int(wrong.argmax())
        yield (
            f"scale_score({z[at]:.4g}) is {scale_score[at]:.6g}, but z * location_score(z) - 1 is "
            f"{expected[at]:.6g}."
        )


def _check_information(family: Family, quick: bool) -> Iterator[str]:
    for name in ("location", "scale"):
        score = getattr(family, f"{name}_score")
        given = getattr(family, f"{name}_information")
        expected = _cumulate(family, score(Z) ** 2)[-1]
        if not (np.isfinite(given) and given > 0 and abs(given - expected) <= RELATIVE_ERROR * expected):
            yield (
                f"{name}_information is {given:.6g}, but the expected square of {name}_score is "
                f"{expected:.6g}."
            )


def _check_sample(family: Family, quick: bool) -> Iterator[str]:
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


def _check_parameters(family: Family, quick: bool) -> Iterator[str]:
    lacking = [name for name in inspect.signature(type(family)).parameters if not hasattr(family, name)]
    if lacking:
        yield (
            f"The constructor takes {', '.join(lacking)}, but the object has no such attribute, so it cannot "
            "be saved: store each argument under its name, or define parameters()."
        )


def _both_sides(positive: np.ndarray) -> np.ndarray:
    return np.concatenate([-positive[::-1], positive])


def _cumulate(family: Family, values: np.ndarray | float = 1.0) -> np.ndarray:
    """The integral of density * values up to each point of Z, by the trapezoidal rule in log |z|."""
    mass = np.nan_to_num(np.exp(family.log_density(Z) + np.log(np.abs(Z))) * values)
    parts = 0.5 * (GRID[1] - GRID[0]) * (mass[1:] + mass[:-1])
    parts[len(GRID) - 1] = 0.0  # between the two innermost points, e^-40 apart
    return np.concatenate([[0.0], np.cumsum(parts)])


QUICK_CHECKS = (_check_shapes, _check_density, _check_scores)
OTHER_CHECKS = (_check_information, _check_sample, _check_parameters)
