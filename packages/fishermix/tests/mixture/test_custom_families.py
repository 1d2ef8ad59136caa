"""Custom families of any shape are fitted to a maximum, and their Fisher information is right."""

import warnings

import numpy as np
import pytest
from fishermix import Mixture
from fishermix.mixture import Family, Gaussian, Laplace, Logistic, StudentT, check_family
from fishermix.mixture.families.check import CHECKED
from refuses import refuses
from scipy import stats
from scipy.optimize import minimize
from scipy.special import gamma, gammaln, log_ndtr
from sklearn.exceptions import ConvergenceWarning


class GeneralizedNormal(Family):
    """Light tails for beta above 2, where -log f is not a concave function of z²."""

    name = "generalized-normal"

    def __init__(self, beta=6.0):
        self.beta = beta

    def log_density(self, z):
        return np.log(self.beta / 2) - gammaln(1 / self.beta) - np.abs(z) ** self.beta

    def location_score(self, z):
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.beta * np.sign(z) * np.abs(z) ** (self.beta - 1)

    def sample(self, rng, size):
        return stats.gennorm.rvs(self.beta, size=size, random_state=rng)


class SkewNormal(Family):
    name = "skew-normal"

    def log_density(self, z):
        return np.log(2) + stats.norm.logpdf(z) + log_ndtr(5 * z)

    def location_score(self, z):
        return z - 5 * np.exp(stats.norm.logpdf(5 * z) - log_ndtr(5 * z))

    def sample(self, rng, size):
        return stats.skewnorm.rvs(5, size=size, random_state=rng)


class Gumbel(Family):
    name = "gumbel"

    def log_density(self, z):
        return -z - np.exp(-z)

    def location_score(self, z):
        return 1 - np.exp(-z)

    def sample(self, rng, size):
        return rng.gumbel(size=size)


class AsymmetricLaplace(Family):
    name = "asymmetric-laplace"

    def log_density(self, z):
        return np.where(z > 0, -2 * z, z / 2) + np.log(0.4)

    def location_score(self, z):
        return np.where(z > 0, 2.0, -0.5)

    def sample(self, rng, size):
        return rng.exponential(0.5, size) - rng.exponential(2, size)


class Cauchy(Family):
    """Not concave in z anywhere far out."""

    name = "cauchy"

    def log_density(self, z):
        return -np.log(np.pi) - np.log1p(z * z)

    def location_score(self, z):
        return 2 * z / (1 + z * z)

    def sample(self, rng, size):
        return rng.standard_cauchy(size)


class Epanechnikov(Family):
    """Without mass outside of -1 to 1."""

    name = "epanechnikov"

    def log_density(self, z):
        with np.errstate(divide="ignore"):
            return np.log(0.75 * np.maximum(1 - z * z, 0))

    def location_score(self, z):
        with np.errstate(divide="ignore"):
            return np.where(np.abs(z) < 1, 2 * z / (1 - z * z), 0.0)

    def sample(self, rng, size):
        return 2 * rng.beta(2, 2, size) - 1


FAMILIES = [
    GeneralizedNormal(1.5),
    GeneralizedNormal(6),
    GeneralizedNormal(10),
    SkewNormal(),
    Gumbel(),
    AsymmetricLaplace(),
    Cauchy(),
    Logistic(),
    StudentT(3),
    Gaussian(),
    Laplace(),
]


def find_maximum(family, x, weight, start):
    """The mean log likelihood of the best location and scale, by scipy."""

    def loss(parameters):
        location, log_scale = parameters
        with np.errstate(all="ignore"):
            density = family.log_density((x - location) / np.exp(log_scale)) - log_scale
        return -weight @ density / weight.sum()

    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 2000}
    starts = [start, (np.median(x), 0.0)]
    return max(-minimize(loss, one, method="Nelder-Mead", options=options).fun for one in starts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_one_component_is_the_maximum_likelihood_fit(family, seed):
    rng = np.random.default_rng(seed)
    for draw in (family.sample, lambda rng, size: rng.exponential(size=size) ** 2):
        x, weight = 2 + 3 * draw(rng, 1500), rng.uniform(0.1, 2, 1500)
        mixture = Mixture(1, families=[family], tol=1e-6, max_iter=300, random_state=seed)
        mixture.fit(x[:, None], sample_weight=weight)
        found = weight @ mixture.score_samples(x[:, None]) / weight.sum()
        start = mixture.locations_[0, 0], np.log(mixture.scales_[0, 0])
        allowed = 1e-4 if isinstance(family, AsymmetricLaplace) else 1e-5  # a kink at every row
        assert found >= find_maximum(family, x, weight, start) - allowed
        assert mixture.converged_
        assert np.diff(mixture.lower_bounds_).min() > -1e-9


def test_the_family_of_the_data_is_chosen():
    light = GeneralizedNormal(6)
    x = light.sample(np.random.default_rng(0), (5000, 1))
    mixture = Mixture(1, families=["gaussian", light], random_state=0).fit(x)
    assert mixture.families_[mixture.choice_[0, 0]] is light


def test_each_cell_chooses_its_degrees_of_freedom():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.standard_t(1, 5000), rng.standard_t(5, 5000), rng.normal(size=5000)])
    offered = ["gaussian", *(StudentT(df) for df in (1, 2, 5, 10))]
    mixture = Mixture(1, families=offered, tol=1e-6, random_state=0).fit(x)
    assert mixture.choice_.tolist() == [[1, 3, 0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_several_components_of_a_skewed_family(dtype):
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [4 * SkewNormal().sample(rng, (3000, 2)) - 30, SkewNormal().sample(rng, (2000, 2)) + 9]
    )
    mixture = Mixture(2, families=[SkewNormal()], random_state=0, n_init=3).fit(x.astype(dtype))
    order = np.argsort(mixture.locations_[:, 0])
    np.testing.assert_allclose(mixture.locations_[order], [[-30, -30], [9, 9]], atol=0.3)
    np.testing.assert_allclose(mixture.scales_[order], [[4, 4], [1, 1]], rtol=0.05)


def test_a_family_without_tails_is_fitted_around_all_rows():
    x = 5 + 2 * Epanechnikov().sample(np.random.default_rng(0), (400, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture = Mixture(1, families=[Epanechnikov()], random_state=0).fit(x)
    assert np.isfinite(mixture.score_samples(x)).all()
    assert mixture.score(x) > stats.norm(*stats.norm.fit(x)).logpdf(x).mean()


class WrongInPlaces(Gumbel):
    """A score that is wrong where `check_family` takes it for a kink."""

    name = "wrong-in-places"

    def location_score(self, z):
        return super().location_score(z) + np.where((z > 1) & (z < 1.05), 80.0, 0.0)

    location_information = 1.0
    scale_information = 1.8237

    def sample(self, rng, size):
        raise NotImplementedError


def test_a_cell_that_ends_with_a_gradient_is_reported():
    x = np.random.default_rng(0).gumbel(size=(500, 1))
    with pytest.warns(ConvergenceWarning, match="check_family"):
        Mixture(1, families=[WrongInPlaces()], random_state=0).fit(x)


@pytest.mark.parametrize("beta", [1.5, 4, 9, 12, 30, 100])
def test_the_information_of_light_tails_is_exact(beta):
    family = GeneralizedNormal(beta)
    exact = beta**2 * gamma((2 * beta - 1) / beta) / gamma(1 / beta)
    assert family.location_information == pytest.approx(exact, rel=1e-9)
    assert family.scale_information == pytest.approx(beta, rel=1e-9)


def test_the_information_of_skewed_families_is_the_mean_of_draws():
    for family in (SkewNormal(), Gumbel(), AsymmetricLaplace()):
        z = family.sample(np.random.default_rng(0), 400_000)
        shared = np.mean(family.location_score(z) * family.scale_score(z))
        assert family.shared_information == pytest.approx(shared, abs=0.05)
        assert family.location_information == pytest.approx(np.mean(family.location_score(z) ** 2), rel=0.05)


def test_wrong_informations_are_refused_by_fit_and_named_by_who_is_wrong(monkeypatch):
    class Given(Gumbel):
        name = "given"
        location_information = 2.0

    x = np.random.default_rng(0).gumbel(size=(50, 1))
    with refuses("wrong_family"):
        Mixture(1, families=[Given()]).fit(x)

    class Right(Gumbel):
        name = "right"

    monkeypatch.setattr("fishermix.mixture.families.base.expect", lambda family, of: 1e-9)
    with refuses("wrong_family"):
        Mixture(1, families=[Right()]).fit(x)
    monkeypatch.undo()
    Mixture(1, families=[Right()]).fit(x)
    assert Right in CHECKED
    check_family(Right())
