"""A mixture and a checkpoint that fishermix 0.1 wrote are still read."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fishermix.mixture import HybridMixture, Mixture

FOLDER = Path(__file__).parent / "saved_by_0_1"
X = (np.random.default_rng(0).integers(-40, 40, size=(200, 3)) / 8).astype(np.float32)
X[:, 2] **= 3  # heavy tails: the Laplacian is chosen there


def test_a_mixture_is_loaded():
    mixture = Mixture.load(FOLDER / "mixture")
    (file,) = (FOLDER / "mixture").glob("*.safetensors")
    tensors = load_file(file)
    assert type(mixture) is HybridMixture
    assert mixture.n_iter_ == 7
    np.testing.assert_array_equal(mixture.weights_, tensors["weights"])
    np.testing.assert_array_equal(mixture.choice_, tensors["choice"])
    for name in ("location", "scale"):
        chosen = np.take_along_axis(tensors[name], tensors["choice"][None], 0)[0]
        np.testing.assert_array_equal(getattr(mixture, f"{name}s_"), chosen)
    np.testing.assert_array_equal(
        [fit.expected_log_likelihood for fit in mixture._last.fits], tensors["quality"]
    )
    assert mixture.score(X) == pytest.approx(-10.22810706828051)
    assert mixture.to_tensors()[1].keys() == tensors.keys()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_checkpoint_is_resumed(tmp_path):
    shutil.copytree(FOLDER / "checkpoint", tmp_path / "checkpoint")
    parameters = {"n_components": 2, "random_state": 0, "tol": 0}
    resumed = HybridMixture(**parameters, max_iter=7, checkpoint=tmp_path / "checkpoint").fit(X)
    assert resumed.n_iter_ == 7
    saved = HybridMixture.load(FOLDER / "mixture")
    # X is float32: the sums of 0.1 were rounded in another order.
    np.testing.assert_allclose(resumed.locations_, saved.locations_, rtol=2e-6)
    np.testing.assert_allclose(resumed.lower_bounds_, saved.lower_bounds_, rtol=1e-6)
