"""Ridges chosen by cross-validation with `pairs`, against scikit-learn's search on repeated rows."""

import warnings

import numpy as np
import pandas as pd
import pytest
from fishermix import RegularizedCCA, RegularizedCCACV
from fishermix.errors import FishermixWarning
from refuses import refuses
from sklearn.model_selection import GridSearchCV, KFold, PredefinedSplit
from sklearn.utils.estimator_checks import parametrize_with_checks

REG = [1e-4, 1e-2, 1.0]


def data(images=60, per_image=3, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((images, 4))
    pairs = rng.permutation(np.repeat(np.arange(images), per_image))
    X = latent @ rng.standard_normal((4, 12)) + noise * rng.standard_normal((images, 12))
    Y = latent[pairs] @ rng.standard_normal((4, 20)) + noise * rng.standard_normal((len(pairs), 20))
    return X, Y, pairs


@pytest.mark.filterwarnings("ignore::fishermix.errors.FishermixWarning")
@pytest.mark.parametrize(
    "options", [{}, {"standardize": True}, pytest.param({"method": "dual"}, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("with_pairs", [True, False])
def test_the_ridges_are_those_of_a_grid_search_on_repeated_rows(with_pairs, options):
    X, Y, pairs = data()
    if not with_pairs:
        X, pairs = X[pairs], np.arange(len(Y))
    chosen = RegularizedCCACV(3, ridges=REG, ridges_y=REG[1:], **options)
    chosen.fit(X, Y, pairs if with_pairs else None)
    number = np.empty(len(Y), int)
    for fold, (_, images) in enumerate(KFold(5, shuffle=True, random_state=0).split(X)):
        number[np.isin(pairs, images)] = fold  # an image and its sentences are on one side
    grid = {"reg_x": REG, "reg_y": REG[1:]}
    search = GridSearchCV(RegularizedCCA(3, **options), grid, cv=PredefinedSplit(number)).fit(X[pairs], Y)
    assert {"reg_x": chosen.reg_x_, "reg_y": chosen.reg_y_} == search.best_params_
    assert chosen.best_score_ == pytest.approx(search.best_score_, abs=1e-6)
    results = chosen.cv_results_
    assert len(results["reg_x"]) == 6
    found = dict(zip(zip(results["reg_x"], results["reg_y"]), results["mean_test_score"]))
    for parameters, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"]):
        assert found[parameters["reg_x"], parameters["reg_y"]] == pytest.approx(score, abs=1e-6)
    best = search.best_estimator_  # fitted to all pairs, as ours
    for name in ("ridged_correlations_", "correlations_", "x_ridge_", "y_ridge_"):
        np.testing.assert_allclose(getattr(chosen, name), getattr(best, name), rtol=1e-6)
    np.testing.assert_allclose(chosen.transform(X), best.transform(X), atol=1e-8)
    np.testing.assert_allclose(chosen.transform_y(Y), best.transform_y(Y), atol=1e-8)
    assert chosen.score(X[pairs], Y) == pytest.approx(best.score(X[pairs], Y))


def test_a_split_of_the_sentences_alone_would_flatter_the_smallest_ridge():
    """What `pairs` is for: the same images on both sides make overfitting look like success."""
    X, Y, pairs = data(images=30, per_image=5, noise=3.0)
    leaky = GridSearchCV(RegularizedCCA(3, reg_y=1.0), {"reg_x": [1e-6, 1.0]}, cv=5).fit(X[pairs], Y)
    with pytest.warns(FishermixWarning):
        honest = RegularizedCCACV(3, ridges=[1e-6, 1.0], ridges_y=[1.0]).fit(X, Y, pairs)
    assert honest.cv_results_["mean_test_score"][0] < leaky.cv_results_["mean_test_score"][0] - 0.05


def test_folds_and_score_may_be_given():
    X, Y, pairs = data()
    calls = []

    def closest_to_a_tenth(fitted, x, y, pairs_of_fold):
        calls.append((len(x), len(y)))
        assert pairs_of_fold.max() == len(x) - 1
        return -abs(np.log(fitted.reg_x / 0.1)) - abs(np.log(fitted.reg_y / 0.1))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cca = RegularizedCCACV(2, ridges=[0.01, 0.1, 1], cv=KFold(3), scoring=closest_to_a_tenth).fit(
            X, Y, pairs
        )
    assert (cca.reg_x_, cca.reg_y_) == (0.1, 0.1)
    assert calls == [(20, 60)] * 27


@pytest.mark.parametrize("wanted", [0.01, 1.0])
def test_a_ridge_at_the_edge_of_the_grid_is_reported(wanted):
    X, Y, _ = data(per_image=1)

    def nearest(fitted, x, y):
        return -abs(np.log(fitted.reg_x / wanted)) - abs(np.log(fitted.reg_y / 0.1))

    with pytest.warns(FishermixWarning) as caught:
        RegularizedCCACV(2, ridges=[0.01, 0.1, 1.0], scoring=nearest).fit(X, Y)
    assert len(caught) == 1


def test_it_is_saved_as_the_cca_that_it_chose(tmp_path):
    X, Y, pairs = data()
    frame = pd.DataFrame(X, columns=[f"feature {i}" for i in range(X.shape[1])])
    chosen = RegularizedCCACV(2, ridges=[0.1], correlation_power=2).fit(frame, Y, pairs)
    chosen.cca_.save(tmp_path / "cca")
    loaded = RegularizedCCA.load(tmp_path / "cca")
    np.testing.assert_array_equal(loaded.transform(frame), chosen.transform(frame))
    with pytest.raises(ValueError, match="feature names"):
        chosen.transform(frame.rename(columns={"feature 0": "other"}))


def test_mistakes_are_named():
    X, Y, pairs = data()
    for wrong in ([], [-1.0], [[0.1]]):
        with refuses("wrong_parameter"):
            RegularizedCCACV(2, ridges=wrong).fit(X, Y, pairs)
        with refuses("wrong_parameter"):
            RegularizedCCACV(2, ridges_y=wrong).fit(X, Y, pairs)


@pytest.mark.parametrize("scoring", ["r@1", 1.0])
def test_a_score_that_is_no_function_is_refused_before_the_folds(scoring):
    X, Y, pairs = data()
    folds = []

    class Folds(KFold):
        def split(self, *given):
            folds.append(given)
            return super().split(*given)

    with refuses("wrong_parameter"):
        RegularizedCCACV(2, scoring=scoring, cv=Folds(3)).fit(X, Y, pairs)
    assert not folds


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fishermix.errors.FishermixWarning")
@pytest.mark.parametrize("swapped", [False, True])
def test_the_method_is_chosen_for_the_ridges_of_the_side_with_more_features(swapped):
    """With one ridge of the large side the dual is cheaper, with many the primal."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((125, 20)), rng.standard_normal((125, 120))
    few, many = [0.1], np.geomspace(0.01, 1, 20)
    for of_small, of_large, method in ((many, few, "dual"), (few, many, "primal")):
        methods = set()

        def note(fitted, *pairs, methods=methods):
            methods.add(fitted.method_)
            return 0.0

        if swapped:
            RegularizedCCACV(2, ridges=of_large, ridges_y=of_small, scoring=note).fit(Y, X)
        else:
            RegularizedCCACV(2, ridges=of_small, ridges_y=of_large, scoring=note).fit(X, Y)
        assert methods == {method}


@pytest.mark.parametrize("bad", [(0.1,), (0.1, 1.0)])
def test_a_score_that_is_not_a_number_is_never_the_best(bad):
    X, Y, pairs = data()
    cca = RegularizedCCACV(
        2, ridges=[0.1, 1.0], ridges_y=[1.0], scoring=lambda cca, *pairs: np.nan if cca.reg_x in bad else -1.0
    )
    if len(bad) == 2:
        with refuses("not_finite"):
            cca.fit(X, Y, pairs)
    else:
        with pytest.warns(FishermixWarning):
            assert cca.fit(X, Y, pairs).reg_x_ == 1.0


ONLY_X = "fit_transform returns both sides; scikit-learn's checks exempt only its own CCA, by its name"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fishermix.errors.FishermixWarning")
@parametrize_with_checks(
    [RegularizedCCACV(cv=2)],
    expected_failed_checks=lambda estimator: {
        "check_transformer_general": ONLY_X,
        "check_transformer_data_not_an_array": ONLY_X,
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
