"""`partial_fit` on streams of batches, against `fit` on all rows."""

from itertools import pairwise

import numpy as np
import pytest
from fishermix.mixture import GaussianMixture, HybridMixture, LaplacianMixture

NAMES = [GaussianMixture, LaplacianMixture, HybridMixture]
K = 5
CLOSE = 0.05  # nats per row

pytestmark = pytest.mark.filterwarnings("ignore::fishermix.errors.FishermixWarning")


def rows(n=3000, d=2, seed=0):
    rng = np.random.default_rng(seed)
    centers, scales = rng.normal(0, 5, (K, d)), rng.uniform(0.5, 1.5, (K, d))
    labels = rng.integers(K, size=n)
    noise = np.where(rng.random((n, 1)) < 0.5, rng.normal(size=(n, d)), rng.laplace(size=(n, d)))
    return centers[labels] + scales[labels] * noise


def stream(mixture, X, size, first=None, sample_weight=None):
    cuts = np.r_[0, np.arange(first or size, len(X), size), len(X)]
    for start, end in pairwise(cuts):
        weight = None if sample_weight is None else sample_weight[start:end]
        mixture.partial_fit(X[start:end], sample_weight=weight)
    return mixture


@pytest.mark.parametrize("size", [100, 430])
@pytest.mark.parametrize("name", NAMES)
def test_batches_after_a_good_beginning_are_as_good_as_all_rows(name, size):
    X = rows()
    mixture = stream(name(K, random_state=0), X, size, first=500)
    assert mixture.score(X) > name(K, random_state=0).fit(X).score(X) - CLOSE


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_stream_goes_on_to_the_same_bits(name, tmp_path):
    X = rows(n=1000).astype(np.float32)
    whole = stream(name(K, random_state=0), X, 100)
    part = stream(name(K, random_state=0), X[:500], 100)
    part.save(tmp_path / "mixture")
    resumed = stream(name.load(tmp_path / "mixture"), X[500:], 100)
    for attribute in ("weights_", "locations_", "scales_", "choice_"):
        np.testing.assert_array_equal(getattr(resumed, attribute), getattr(whole, attribute))


def test_another_number_of_components_is_refused():
    X = rows(n=300)
    mixture = GaussianMixture(2, random_state=0).partial_fit(X[:100]).set_params(n_components=3)
    with pytest.raises(ValueError, match="The mixture has 2 components, but n_components = 3"):
        mixture.partial_fit(X[100:])
