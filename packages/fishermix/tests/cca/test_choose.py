"""Cross-validation with `pairs`, against scikit-learn's on repeated rows."""

import numpy as np
import pytest
from fishermix.cca.choose import choose_ridges
from fishermix.cca.estimator import RegularizedCCA
from fishermix.errors import FishermixError
from sklearn.model_selection import GridSearchCV, KFold, PredefinedSplit

REG = [1e-4, 1e-2, 1.0]


def data(images=60, per_image=3, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((images, 4))
    pairs = rng.permutation(np.repeat(np.arange(images), per_image))
    X = latent @ rng.standard_normal((4, 12)) + noise * rng.standard_normal((images, 12))
    Y = latent[pairs] @ rng.standard_normal((4, 20)) + noise * rng.standard_normal((len(pairs), 20))
    return X, Y, pairs


@pytest.mark.parametrize("with_pairs", [True, False])
def test_the_ridges_are_those_of_a_grid_search_on_repeated_rows(with_pairs):
    X, Y, pairs = data()
    if not with_pairs:
        X, pairs = X[pairs], np.arange(len(Y))
    chosen = choose_ridges(RegularizedCCA(3), X, Y, pairs if with_pairs else None, reg_x=REG, reg_y=REG)
    number = np.empty(len(Y), int)
    for fold, (_, images) in enumerate(KFold(5, shuffle=True, random_state=0).split(X)):
        number[np.isin(pairs, images)] = fold  # an image and its sentences are on one side
    grid = {"reg_x": REG, "reg_y": REG}
    search = GridSearchCV(RegularizedCCA(3), grid, cv=PredefinedSplit(number)).fit(X[pairs], Y)
    assert {"reg_x": chosen.reg_x, "reg_y": chosen.reg_y} == search.best_params_
    found = {(x, y): score for x, y, score in chosen.cv_scores_}
    for parameters, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"]):
        assert found[parameters["reg_x"], parameters["reg_y"]] == pytest.approx(score, abs=1e-6)
    np.testing.assert_allclose(
        chosen.correlations_, search.best_estimator_.correlations_, rtol=1e-6
    )  # fitted to all pairs


def test_a_split_of_the_sentences_alone_would_flatter_the_smallest_ridge():
    """What `pairs` is for: the same images on both sides make overfitting look like success."""
    X, Y, pairs = data(images=30, per_image=5, noise=3.0)
    ridges = {"reg_x": [1e-6, 1.0], "reg_y": [1.0]}
    leaky = GridSearchCV(RegularizedCCA(3), ridges, cv=5).fit(X[pairs], Y)
    honest = choose_ridges(RegularizedCCA(3), X, Y, pairs, **ridges)
    scores = {reg_x: score for reg_x, _, score in honest.cv_scores_}
    assert scores[1e-6] < leaky.cv_results_["mean_test_score"][0] - 0.05


def test_no_ridges_are_named():
    X, Y, pairs = data()
    with pytest.raises(FishermixError, match="at least one"):
        choose_ridges(RegularizedCCA(2), X, Y, pairs, reg_x=[], reg_y=[])


@pytest.mark.parametrize("bad", [(0.1,), (0.1, 1.0)])
def test_a_score_that_is_not_a_number_is_never_the_best(bad, monkeypatch):
    X, Y, pairs = data()
    monkeypatch.setattr(RegularizedCCA, "score", lambda cca, *pairs: np.nan if cca.reg_x in bad else -np.inf)
    if len(bad) == 2:
        with pytest.raises(FishermixError, match="NaN for all 2 pairs of ridges"):
            choose_ridges(RegularizedCCA(2), X, Y, pairs, reg_x=[0.1, 1.0], reg_y=1.0)
    else:
        assert choose_ridges(RegularizedCCA(2), X, Y, pairs, reg_x=[0.1, 1.0], reg_y=1.0).reg_x == 1.0
