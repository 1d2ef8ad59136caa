"""What scikit-learn's users rely on without reading it."""

import inspect
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fishermix import SentenceEncoder, WordVectors
from fishermix.errors import FishermixWarning
from fishermix.mixture import GaussianMixture, HybridMixture
from refuses import refuses
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as SklearnGaussianMixture
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

X = np.random.default_rng(0).normal(size=(300, 3)) + np.repeat([[0], [4], [8]], 100, axis=0)
DOCUMENT = (Path(__file__).parents[4] / "docs" / "mixtures.md").read_text("utf8")


def test_n_iter_counts_the_last_fit_only(tmp_path):
    ours = GaussianMixture(3, tol=0, max_iter=4, random_state=0, warm_start=True)
    theirs = SklearnGaussianMixture(3, covariance_type="diag", tol=0, max_iter=4, warm_start=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours.fit(X), theirs.fit(X)
        before = ours.lower_bounds_
        ours.fit(X), theirs.fit(X)
    assert ours.n_iter_ == theirs.n_iter_ == len(ours.lower_bounds_) == 4
    assert ours.lower_bounds_[0] >= before[-1]
    ours.save(tmp_path / "mixture")
    loaded = GaussianMixture.load(tmp_path / "mixture")
    assert (loaded.n_iter_, loaded.lower_bounds_) == (4, ours.lower_bounds_)


def test_a_warning_points_at_the_users_line():
    with pytest.warns(ConvergenceWarning) as caught:
        HybridMixture(3, max_iter=1, random_state=0).fit(X)
    assert caught[0].filename == __file__
    with pytest.warns(FishermixWarning) as caught:
        HybridMixture(2, random_state=0).fit_predict(np.ones((20, 2)))
    line = inspect.currentframe().f_lineno - 1
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)
    encoder = SentenceEncoder(WordVectors(["dog"], [[1.0]]))
    with pytest.warns(FishermixWarning, match="no word in the vocabulary") as caught:
        encoder.transform(["xyz"])
    assert caught[0].filename == __file__


def test_save_keeps_the_names_of_the_features(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    GaussianMixture(2, random_state=0).fit(frame).save(tmp_path / "mixture")
    loaded = GaussianMixture.load(tmp_path / "mixture")
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["b", "a", "c"]])
    config = tmp_path / "mixture" / "config.json"
    config.write_text(config.read_text().replace('"c"', "3"))
    with refuses("damaged"):
        GaussianMixture.load(tmp_path / "mixture")


def test_scores_of_float32_rows_are_float64_as_documented():
    mixture = GaussianMixture(2, random_state=0).fit(X.astype(np.float32))
    assert mixture.score_samples(X.astype(np.float32)).dtype == np.float64
    assert "scikit-learn's `GaussianMixture` returns float32" in " ".join(DOCUMENT.split())


def test_a_component_needs_a_row():
    with pytest.raises(ValueError, match="set n_components to at most 5"):
        HybridMixture(30).fit(X[:5])


@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_a_sentence_encoder_says_that_it_takes_no_arrays():
    encoder = SentenceEncoder(WordVectors(["dog"], [[1.0]]))
    tags = get_tags(encoder)
    assert not tags.input_tags.two_d_array
    assert tags.input_tags.string
    assert not tags.requires_fit
    assert not [r for r in check_estimator(encoder, on_fail=None) if r["status"] == "failed"]
