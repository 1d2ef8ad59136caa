"""Families: scores are derivatives, informations are expected squared scores, fits are maxima."""

import numpy as np
import pytest
from fishermix.errors import FishermixError
from fishermix.mixture import Family, Gaussian, Laplace, StudentT, register_family
from fishermix.mixture.families import REGISTERED, describe_family, make_family
from fishermix.mixture.families.integrals import expect
from fishermix.mixture.saved import FamilyConfig
from fishermix.saved import parse
from hypothesis import given
from hypothesis import strategies as st
from oracles import fit_family
from refuses import refuses
from scipy.optimize import minimize

FAMILIES = [*(family() for family in REGISTERED.values()), StudentT(1.5)]
names = pytest.mark.parametrize("family", FAMILIES, ids=repr)


class Gumbel(Family):
    """Not symmetric, no closed form given: everything comes from the base class."""

    name = "gumbel"

    def log_density(self, z):
        return -z - np.exp(-z)

    def location_score(self, z):
        return 1 - np.exp(-z)

    def sample(self, rng, size):
        return rng.gumbel(size=size)


def log_likelihood(family, x, location, scale):
    return family.log_density((x - location) / scale) - np.log(scale)


@given(
    z=st.floats(-8, 8).filter(lambda z: abs(z) > 1e-3),
    location=st.floats(-3, 3),
    scale=st.floats(0.1, 5),
    family=st.sampled_from([*FAMILIES, Gumbel()]),
)
def test_scores_are_the_derivatives(z, location, scale, family):
    x, step = np.array([location + scale * z]), 1e-6
    by_location = log_likelihood(family, x, location + step * scale, scale) - log_likelihood(
        family, x, location - step * scale, scale
    )
    by_scale = log_likelihood(family, x, location, scale * (1 + step)) - log_likelihood(
        family, x, location, scale * (1 - step)
    )
    z = (x - location) / scale
    np.testing.assert_allclose(by_location / (2 * step), family.location_score(z), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(by_scale / (2 * step), family.scale_score(z), rtol=1e-4, atol=1e-4)


@names
def test_information_is_the_expected_squared_score(family):
    z = family.sample(np.random.default_rng(0), 1_000_000)
    assert np.mean(family.location_score(z) ** 2) == pytest.approx(family.location_information, rel=0.02)
    assert np.mean(family.scale_score(z) ** 2) == pytest.approx(family.scale_information, rel=0.02)


@pytest.mark.parametrize("family", [*FAMILIES, Gumbel()], ids=lambda f: f.name)
def test_densities_integrate_to_one_and_the_default_information_agrees(family):
    assert expect(family, lambda _, z: np.ones_like(z)) == pytest.approx(1, abs=1e-9)
    assert Family.location_information.func(family) == pytest.approx(family.location_information, rel=1e-8)
    assert Family.scale_information.func(family) == pytest.approx(family.scale_information, rel=1e-8)


def test_a_point_on_the_median_counts_as_below():
    np.testing.assert_array_equal(Laplace().location_score(np.array([-1.0, 0.0, 1.0])), [-1, -1, 1])


@pytest.mark.parametrize("family", [*FAMILIES, Gumbel()], ids=lambda f: f.name)
def test_weighted_fit_is_the_maximum(family):
    rng = np.random.default_rng(1)
    x, weight = 2 + 3 * family.sample(rng, (400, 1)), rng.uniform(0.1, 2, 400)
    location, scale = fit_family(family, x, weight)

    def loss(p):
        return -weight @ log_likelihood(family, x[:, 0], p[0], np.exp(p[1])) / weight.sum()

    best = minimize(loss, [location[0] + 0.3, np.log(scale[0]) + 0.2], method="Nelder-Mead", tol=1e-10)
    assert loss([location[0], np.log(scale[0])]) <= best.fun + 1e-8


def test_student_needs_positive_degrees_of_freedom():
    with refuses("wrong_parameter"):
        StudentT(-1)


@names
def test_families_survive_their_config(family):
    assert make_family(*describe_family(family)) == family


def test_only_registered_families_are_saved():
    with refuses("not_registered"):
        describe_family(Gumbel())
    register_family(Gumbel)
    try:
        assert isinstance(make_family("gumbel", {}), Gumbel)
        with refuses("repeated"):
            register_family(type("Other", (Gumbel,), {}))
    finally:
        del REGISTERED["gumbel"]


def test_a_built_in_family_is_not_replaced():
    impostor = type("Gaussian", (Gaussian,), {"__module__": __name__})
    assert impostor.__qualname__ == Gaussian.__qualname__
    try:
        with refuses("repeated"):
            register_family(impostor)
        assert REGISTERED["gaussian"] is Gaussian
    finally:
        REGISTERED["gaussian"] = Gaussian


@pytest.mark.parametrize(
    "config", [{"name": "os.system"}, {"name": "student-t", "parameters": {"x": 1}}, None, {"name": ["a"]}]
)
def test_damaged_family_configs_are_refused(config):
    def read():
        found = parse(config, FamilyConfig, "a test")
        return make_family(found.name, found.parameters)

    with pytest.raises(FishermixError):
        read()
