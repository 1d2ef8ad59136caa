"""`check_family` accepts right families and names what is wrong with others."""

import numpy as np
import pytest
from fishermix import Mixture
from fishermix.errors import FishermixError
from fishermix.mixture import Family, Gaussian, Laplace, Logistic, StudentT, check_family, register_family
from fishermix.mixture.families import REGISTERED
from refuses import refuses


class Gumbel(Family):
    """A right family, not symmetric."""

    name = "gumbel"

    def log_density(self, z):
        return -z - np.exp(-z)

    def location_score(self, z):
        return 1 - np.exp(-z)

    def sample(self, rng, size):
        return rng.gumbel(size=size)


class Huber(Family):
    """A right family with an argument and two kinks in its score."""

    name = "huber"

    def __init__(self, k=1.345):
        self.k = k

    def _log_mass(self):
        from scipy.stats import norm

        return np.log(np.sqrt(2 * np.pi) * (2 * norm.cdf(self.k) - 1) + 2 * np.exp(-(self.k**2) / 2) / self.k)

    def log_density(self, z):
        far = self.k * np.abs(z) - self.k**2 / 2
        return np.where(np.abs(z) <= self.k, -z * z / 2, -far) - self._log_mass()

    def location_score(self, z):
        return np.clip(z, -self.k, self.k)

    def sample(self, rng, size):
        grid = np.linspace(-30, 30, 100_001)
        mass = np.cumsum(np.exp(self.log_density(grid)))
        return np.interp(rng.uniform(size=size), mass / mass[-1], grid)


class Unnormalized(Gumbel):
    name = "unnormalized"

    def log_density(self, z):
        return super().log_density(z) + np.log(1.8)


class WrongScore(Gumbel):
    name = "wrong-score"

    def location_score(self, z):
        return np.exp(-z) - 1


class WrongScaleScore(Gumbel):
    name = "wrong-scale-score"

    def scale_score(self, z):
        return z * self.location_score(z)


class WrongSample(Gumbel):
    name = "wrong-sample"

    def sample(self, rng, size):
        return 1.2 * rng.gumbel(size=size)


class WrongInformation(Gumbel):
    name = "wrong-information"
    location_information = 2.0


class Scalar(Gumbel):
    name = "scalar"

    def log_density(self, z):
        return float(np.sum(super().log_density(z)))


class NotANumber(Gumbel):
    name = "nan"

    def log_density(self, z):
        return np.where(np.abs(z) > 100, np.nan, super().log_density(z))


class OneShape(Gumbel):
    name = "one-shape"

    def sample(self, rng, size):
        return rng.gumbel()


class Failing(Gumbel):
    name = "failing"

    def location_score(self, z):
        raise RuntimeError("not today")


class Forgetful(Gumbel):
    name = "forgetful"

    def __init__(self, df=3):
        self.degrees = df


class Bare(Family):
    pass


class NoSample(Family):
    name = "no-sample"
    log_density = Gumbel.log_density
    location_score = Gumbel.location_score


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [Gaussian(), Laplace(), Logistic(), StudentT(1.5), StudentT(30), Gumbel(), Huber()],
)
def test_right_families_pass(family):
    check_family(family)
    check_family(family, quick=True)


def test_a_family_is_shown_as_it_is_made():
    assert repr(Gumbel()) == "Gumbel()"
    assert repr(Huber(2.0)) == "Huber(k=2.0)"
    assert repr(StudentT(3.0)) == "StudentT(df=3.0)"


WRONG = [
    (Unnormalized, r"integrates to 1\.8, not to 1: subtract 0\.5877"),
    (WrongScore, r"location_score\(.*\) is .*, but -d log_density / dz is"),
    (WrongScaleScore, r"scale_score\(.*\) is .*, but z \* location_score\(z\) - 1 is"),
    (Scalar, "log_density must return floats of the shape of z"),
    (NotANumber, "log_density is NaN or infinite at z = "),
    (Failing, "RuntimeError: not today"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "message"), WRONG)
def test_wrong_densities_and_scores_are_named_also_by_fit(family, message):
    for quick in (False, True):
        with refuses("wrong_family"):
            check_family(family(), quick=quick)
    rows = np.random.default_rng(0).gumbel(size=(50, 2))
    with pytest.raises(FishermixError, match=message):
        Mixture(1, families=["gaussian", family()]).fit(rows)
    with pytest.raises(FishermixError, match=message):
        register_family(family)
    assert family.name not in REGISTERED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "message"),
    [
        (WrongSample, "sample does not draw from the density"),
        (OneShape, r"sample\(rng, 4\) returned the shape \(\)"),
        (WrongInformation, r"location_information is 2, but the expected square of location_score is 1"),
        (Forgetful, "constructor takes df, but the object has no such attribute"),
    ],
)
def test_what_em_does_not_need_is_named_by_the_whole_check(family, message):
    check_family(family(), quick=True)
    with pytest.raises(FishermixError, match=message):
        check_family(family())
    with pytest.raises(FishermixError, match=message):
        register_family(family)


def test_what_is_missing_is_named():
    for family, missing in ((Bare, "location_score.*log_density.*sample"), (NoSample, "sample")):
        with pytest.raises(TypeError, match=missing):
            family()
        with pytest.raises(TypeError, match=missing):
            register_family(type(family.__name__, (family,), {"name": "missing"}))
    nameless = type(
        "Nameless", (Family,), {name: getattr(Gumbel, name) for name in Family.__abstractmethods__}
    )
    with refuses("wrong_family"):
        check_family(nameless())
    with refuses("wrong_parameter"):
        check_family(Gumbel)


def test_a_family_that_needs_arguments_is_registered_unchecked():
    class Needs(Gumbel):
        name = "needs"

        def __init__(self, k):
            self.k = k

    try:
        assert register_family(Needs) is Needs
    finally:
        del REGISTERED["needs"]
