"""Mixtures that were not fitted here: from given parameters, also those of scikit-learn."""

import numpy as np
import pytest
from fishermix import GaussianMixture, HybridMixture, LaplacianMixture, Mixture
from fishermix.mixture import StudentT
from numpy.testing import assert_allclose, assert_array_equal
from refuses import refuses
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as TheirMixture

WEIGHTS = np.array([0.3, 0.7])
LOCATIONS = np.array([[0.0, 1.0, 2.0], [3.0, -1.0, 0.5]])
SCALES = np.array([[1.0, 0.5, 1e-5], [2.0, 1.5, 0.7]])
CHOICE = np.array([[0, 1, 2], [2, 1, 0]])
FAMILIES = ["gaussian", "laplace", StudentT(5.0)]
DENSITIES = [stats.norm.logpdf, stats.laplace.logpdf, lambda z: stats.t.logpdf(z, 5)]


def naive_log_likelihoods(rows):
    joint = np.log(WEIGHTS) + np.zeros((len(rows), 2))
    for k, d in np.ndindex(2, 3):
        z = (rows[:, d] - LOCATIONS[k, d]) / SCALES[k, d]
        joint[:, k] += DENSITIES[CHOICE[k, d]](z) - np.log(SCALES[k, d])
    return np.logaddexp.reduce(joint, axis=1)


def test_a_mixture_of_given_parameters_has_their_density(tmp_path):
    mixture = Mixture.from_parameters(WEIGHTS, LOCATIONS, SCALES, CHOICE, families=FAMILIES)
    rows = np.random.default_rng(0).normal(size=(50, 3))
    assert_allclose(mixture.score_samples(rows), naive_log_likelihoods(rows))
    assert_array_equal(mixture.scales_, SCALES)  # also the one below the default min_scale
    drawn, labels = mixture.sample(20000)
    assert_allclose(np.median(drawn[labels == 1], axis=0), LOCATIONS[1], atol=0.1)
    mixture.save(tmp_path / "mixture")
    loaded = Mixture.load(tmp_path / "mixture")
    assert_array_equal(loaded.score_samples(rows), mixture.score_samples(rows))
    with pytest.raises(AttributeError, match="known after fit"):
        mixture.lower_bound_  # noqa: B018


def test_what_is_given_is_copied():
    weights = WEIGHTS.copy()
    mixture = GaussianMixture.from_parameters(weights, LOCATIONS, SCALES)
    weights[:] = 0.5
    assert_array_equal(mixture.weights_, WEIGHTS)


def test_em_continues_from_given_parameters():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(300, 2)), rng.normal(5, 1, size=(700, 2))])
    mixture = GaussianMixture.from_parameters([0.5, 0.5], [[1.0, 1], [4, 4]], np.ones((2, 2)))
    mixture.set_params(warm_start=True)
    assert mixture.fit(rows).score(rows) > GaussianMixture(1).fit(rows).score(rows)
    assert_allclose(mixture.weights_, [0.3, 0.7], atol=0.02)


def test_the_choice_defaults_to_the_first_family():
    rows = np.zeros((1, 3))
    laplace = LaplacianMixture.from_parameters(WEIGHTS, LOCATIONS, SCALES)
    assert isinstance(laplace, LaplacianMixture)
    same = HybridMixture.from_parameters(WEIGHTS, LOCATIONS, SCALES, np.ones((2, 3), int))
    assert_array_equal(laplace.score_samples(rows), same.score_samples(rows))


@pytest.mark.parametrize(
    "changed",
    [
        {"weights": [0.3, 0.8]},
        {"weights": [1.0]},
        {"weights": [1.0, 0.0]},
        {"locations": [1.0, 2.0]},
        {"locations": LOCATIONS * np.nan},
        {"scales": -SCALES},
        {"scales": SCALES[:, :2]},
        {"choice": CHOICE + 1},
        {"choice": CHOICE * 0.5},
        {"families": ["gauss"]},
    ],
)
def test_parameters_that_cannot_be_are_refused(changed):
    given = {"weights": WEIGHTS, "locations": LOCATIONS, "scales": SCALES, "choice": CHOICE}
    with refuses("wrong_parameter"):
        Mixture.from_parameters(**given | {"families": FAMILIES} | changed)


def test_named_mixtures_have_fixed_families():
    with refuses("wrong_parameter"):
        GaussianMixture.from_parameters(WEIGHTS, LOCATIONS, SCALES, families=["laplace"])


def test_the_arrays_of_scikit_learn_make_its_densities():
    rows = np.random.default_rng(0).normal(size=(500, 4))
    theirs = TheirMixture(3, covariance_type="diag", random_state=0).fit(rows)
    ours = GaussianMixture.from_parameters(theirs.weights_, theirs.means_, np.sqrt(theirs.covariances_))
    assert_allclose(ours.score_samples(rows), theirs.score_samples(rows))
    assert_allclose(ours.predict_proba(rows), theirs.predict_proba(rows), atol=1e-10)
    assert ours.bic(rows) == pytest.approx(theirs.bic(rows))


def test_our_gaussian_mixture_has_the_attributes_of_scikit_learns():
    rows = np.random.default_rng(0).normal(size=(400, 3)) * [1, 2, 3]
    start = {"weights_init": [0.5, 0.5], "random_state": 0, "tol": 0, "max_iter": 5}
    means, scales = rows[:2], np.ones((2, 3))
    ours = GaussianMixture(2, locations_init=means, scales_init=scales, **start).fit(rows)
    with pytest.warns(ConvergenceWarning):
        theirs = TheirMixture(
            2, covariance_type="diag", means_init=means, precisions_init=scales, reg_covar=0, **start
        ).fit(rows)
    for name in ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_", "lower_bound_"):
        assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-8)
    assert not hasattr(GaussianMixture(), "means_")
