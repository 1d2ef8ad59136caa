"""The estimator against a dense oracle, against itself by other routes, and against scikit-learn's checks."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from fishermix.cca.covariances import CovarianceSums
from fishermix.cca.estimator import LARGEST_RESIDUAL, RegularizedCCA, _largest_residual
from hypothesis import given, settings
from hypothesis import strategies as st
from refuses import refuses
from scipy.linalg import solve_triangular
from sklearn.cross_decomposition import CCA
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks


def data(images=60, per_image=3, p=12, q=20, seed=0, latent=5):
    """Images, sentences in random order, and the image of each sentence."""
    rng = np.random.default_rng(seed)
    meaning = rng.standard_normal((images, latent))
    pairs = rng.permutation(np.repeat(np.arange(images), per_image))
    X = meaning @ rng.standard_normal((latent, p)) + rng.standard_normal((images, p)) + 3
    Y = (meaning @ rng.standard_normal((latent, q)))[pairs] + rng.standard_normal((len(pairs), q)) - 7
    return X, Y, pairs


def dense_oracle(X, Y, reg_x, reg_y, k):
    """Whiten both sides by Cholesky factors and take singular vectors, all in float64."""
    X, Y = X - X.mean(axis=0, dtype=np.float64), Y - Y.mean(axis=0, dtype=np.float64)
    lower = []
    for side, reg in ((X, reg_x), (Y, reg_y)):
        covariance = side.T @ side / len(side)
        ridge = reg * np.linalg.eigvalsh(covariance)[-1]
        lower.append(np.linalg.cholesky(covariance + ridge * np.eye(len(covariance))))
    between = solve_triangular(lower[0], X.T @ Y / len(X), lower=True)
    between = solve_triangular(lower[1], between.T, lower=True).T
    left, correlations, right = np.linalg.svd(between, full_matrices=False)
    u = solve_triangular(lower[0], left[:, :k], lower=True, trans="T")
    v = solve_triangular(lower[1], right[:k].T, lower=True, trans="T")
    return correlations[:k], u, v


def fitted_by(route, X, Y, pairs, **params):
    if route == "streaming":
        blocks = (Y[start : start + 17] for start in range(0, len(Y), 17))
        return RegularizedCCA(**params).fit(X, blocks, pairs)
    return RegularizedCCA(**params, method=route).fit(X, Y, pairs)


SHAPES = {
    "tall": {},
    "x larger": {"p": 25, "q": 14},
    "fewer pairs than features": {"images": 12, "p": 16, "q": 50},
    "fewer images than features": {"images": 12, "p": 40, "q": 50},
    "fewer images than features, x larger": {"images": 12, "p": 50, "q": 40},
    "one feature": {"p": 1, "q": 1},
}


@pytest.mark.parametrize("route", ["primal", "dual", "streaming"])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_routes_equal_the_dense_oracle(route, shape):
    X, Y, pairs = data(**SHAPES[shape])
    k = min(4, X.shape[1], Y.shape[1])
    cca = fitted_by(route, X, Y, pairs, n_components=k, reg_x=0.03, reg_y=0.2)
    assert cca.method_ == route
    correlations, u, v = dense_oracle(X[pairs], Y, 0.03, 0.2, k)
    np.testing.assert_allclose(cca.ridged_correlations_, correlations, atol=1e-9)
    sign = np.sign((u * cca.x_weights_).sum(axis=0))
    np.testing.assert_allclose(cca.x_weights_, u * sign, atol=1e-7)
    np.testing.assert_allclose(cca.y_weights_, v * sign, atol=1e-7)
    np.testing.assert_allclose(cca.x_mean_, X[pairs].mean(axis=0))
    np.testing.assert_allclose(cca.y_mean_, Y.mean(axis=0))


@settings(max_examples=25, deadline=None)
@given(
    images=st.integers(3, 40),
    p=st.integers(1, 30),
    q=st.integers(1, 30),
    reg_x=st.sampled_from([0.0, 1e-3, 0.1, 3.0]),
    reg_y=st.sampled_from([0.0, 1e-3, 0.1, 3.0]),
    seed=st.integers(0, 99),
)
def test_correlations_fall_lie_in_zero_to_one_and_agree_by_all_routes(images, p, q, reg_x, reg_y, seed):
    X, Y, pairs = data(images, 2, p, q, seed)
    k = min(3, p, q, images - 1)
    routes = [
        fitted_by(route, X, Y, pairs, n_components=k, reg_x=reg_x, reg_y=reg_y).ridged_correlations_
        for route in ("primal", "dual", "streaming")
    ]
    assert (np.diff(routes[0]) <= 1e-12).all()
    assert routes[0].max() <= 1
    assert routes[0].min() >= 0
    np.testing.assert_allclose(routes[1], routes[0], atol=1e-4)
    np.testing.assert_allclose(routes[2], routes[0], atol=1e-4)


@pytest.mark.slow
def test_several_panels_in_single_precision_agree_with_a_double_precision_reference():
    X, Y, pairs = data(images=300, per_image=5, p=80, q=3500, latent=30)
    X, Y = X.astype(np.float32), Y.astype(np.float32)
    single = RegularizedCCA(20, reg_x=1e-3, reg_y=1e-3, method="primal").fit(X, Y, pairs)
    double = RegularizedCCA(20, reg_x=1e-3, reg_y=1e-3, method="dual").fit(X, Y.astype(np.float64), pairs)
    assert single.y_weights_.dtype == np.float32
    np.testing.assert_allclose(single.ridged_correlations_, double.ridged_correlations_, atol=1e-5)
    # Directions of nearly equal correlations may mix; what retrieval sees is the cosine.
    x, y = single.transform(X, Y)
    x_double, y_double = double.transform(X, Y.astype(np.float64))
    np.testing.assert_allclose(cosine_similarity(x, y), cosine_similarity(x_double, y_double), atol=1e-3)


def test_projections_have_unit_ridged_variance_and_the_canonical_correlations():
    X, Y, pairs = data()
    cca = RegularizedCCA(5, reg_x=0, reg_y=0, correlation_power=0).fit(X, Y, pairs)
    x, y = cca.transform(X[pairs], Y)
    np.testing.assert_allclose(x.T @ x / len(x), np.eye(5), atol=1e-8)
    np.testing.assert_allclose(y.T @ y / len(y), np.eye(5), atol=1e-8)
    np.testing.assert_allclose(x.T @ y / len(y), np.diag(cca.ridged_correlations_), atol=1e-8)


def test_without_ridge_invertible_maps_change_nothing():
    X, Y, pairs = data()
    rng = np.random.default_rng(1)
    X_map, Y_map = (np.eye(size) + 0.1 * rng.standard_normal((size, size)) for size in (12, 20))
    here = RegularizedCCA(5, reg_x=0, reg_y=0).fit(X, Y, pairs)
    there = RegularizedCCA(5, reg_x=0, reg_y=0).fit(X @ X_map + 1, Y @ Y_map, pairs)
    np.testing.assert_allclose(here.ridged_correlations_, there.ridged_correlations_, atol=1e-7)
    np.testing.assert_allclose(np.abs(here.transform(X)), np.abs(there.transform(X @ X_map + 1)), atol=1e-5)


def test_the_ridge_does_not_depend_on_the_units():
    X, Y, pairs = data()
    here = RegularizedCCA(5).fit(X, Y, pairs)
    there = RegularizedCCA(5).fit(1000 * X, Y / 50, pairs)
    np.testing.assert_allclose(here.ridged_correlations_, there.ridged_correlations_, atol=1e-9)
    np.testing.assert_allclose(here.transform(X), there.transform(1000 * X), atol=1e-9)


@pytest.mark.parametrize("method", ["primal", "dual"])
def test_the_ridge_is_a_share_of_the_largest_eigenvalue(method):
    X, Y, pairs = data()
    cca = RegularizedCCA(5, reg_x=0.5, reg_y=0.25, method=method).fit(X, Y, pairs)
    assert cca.x_ridge_ == pytest.approx(0.5 * np.linalg.eigvalsh(np.cov(X[pairs].T, bias=True))[-1])
    assert cca.y_ridge_ == pytest.approx(0.25 * np.linalg.eigvalsh(np.cov(Y.T, bias=True))[-1])


def test_pairs_equal_the_images_written_out():
    X, Y, pairs = data()
    shared, copied = RegularizedCCA(5).fit(X, Y, pairs), RegularizedCCA(5).fit(X[pairs], Y)
    np.testing.assert_allclose(shared.ridged_correlations_, copied.ridged_correlations_, atol=1e-12)
    np.testing.assert_allclose(shared.transform(X), copied.transform(X), atol=1e-9)


@pytest.mark.parametrize("method", ["primal", "dual"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_doubled_and_missing_features_are_no_trouble(method, dtype):
    X, Y, pairs = data()
    X = np.hstack((X, np.full((len(X), 2), 5.0), X[:, :3])).astype(dtype)
    Y = np.hstack((Y, np.zeros((len(Y), 3)), Y)).astype(dtype)
    cca = RegularizedCCA(5, reg_x=0, reg_y=0, method=method).fit(X, Y, pairs)
    plain = RegularizedCCA(5, reg_x=0, reg_y=0).fit(*data())
    np.testing.assert_allclose(cca.ridged_correlations_, plain.ridged_correlations_, atol=1e-3)
    assert np.isfinite(cca.y_weights_).all()


@pytest.mark.parametrize("method", ["primal", "dual"])
def test_a_side_without_variance_has_no_correlations(method):
    X, Y, pairs = data()
    for x, y in ((np.ones_like(X), Y), (X, np.ones_like(Y)), (X[:, :1] * 0, Y)):
        cca = RegularizedCCA(1, method=method).fit(x, y, pairs)
        np.testing.assert_allclose(cca.ridged_correlations_, 0, atol=1e-6)
        assert np.isfinite(cca.transform(x)).all()
        assert np.isfinite(cca.transform_y(y)).all()


def test_the_power_of_the_correlations_may_change_after_the_fit():
    X, Y, pairs = data()
    cca = RegularizedCCA(5, correlation_power=0).fit(X, Y, pairs)
    bare = cca.transform(X)
    for power in (1, 4, 0.5, 0):
        cca.correlation_power = power
        np.testing.assert_allclose(cca.transform(X), bare * cca.ridged_correlations_**power, atol=1e-10)


@pytest.mark.parametrize("scale", [True, False])
def test_scikit_learns_scale_is_not_mistaken_for_a_power(scale):
    X, Y, pairs = data()
    with pytest.raises(TypeError, match="scale"):
        RegularizedCCA(scale=scale)
    with refuses("wrong_parameter"):
        RegularizedCCA(correlation_power=scale).fit(X, Y, pairs)


@pytest.mark.parametrize("route", ["primal", "dual", "streaming"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("standardize", [False, True])
def test_the_correlations_are_those_of_the_projections_of_the_pairs(route, shape, standardize):
    X, Y, pairs = data(**SHAPES[shape])
    k = min(3, X.shape[1], Y.shape[1])
    cca = fitted_by(route, X, Y, pairs, n_components=k, reg_x=0.1, reg_y=1.0, standardize=standardize)
    x, y = cca.transform(X[pairs], Y)
    expected = [np.corrcoef(a, b)[0, 1] for a, b in zip(x.T, y.T)]
    np.testing.assert_allclose(cca.correlations_, expected, atol=1e-8)
    assert (cca.ridged_correlations_ < cca.correlations_).all()


def test_in_single_precision_the_correlations_are_those_of_the_projections():
    X, Y = in_single(2000, 60, 90)
    cca = RegularizedCCA(5, reg_x=0.1, reg_y=0.1).fit(X, Y)
    x, y = cca.transform(X, Y)
    expected = [np.corrcoef(a, b)[0, 1] for a, b in zip(x.T, y.T)]
    np.testing.assert_allclose(cca.correlations_, expected, atol=1e-5)


@pytest.mark.parametrize("route", ["primal", "dual", "streaming"])
@pytest.mark.parametrize("shape", SHAPES)
def test_standardized_features_may_have_any_units(route, shape):
    X, Y, pairs = data(**SHAPES[shape])
    k = min(3, X.shape[1], Y.shape[1])
    options = {"n_components": k, "reg_x": 0.03, "reg_y": 0.2}
    by_hand = fitted_by(route, X / X[pairs].std(axis=0), Y / Y.std(axis=0), pairs, **options)
    rng = np.random.default_rng(0)
    X_units, Y_units = 10.0 ** rng.integers(-3, 4, X.shape[1]), 10.0 ** rng.integers(-3, 4, Y.shape[1])
    found = fitted_by(route, X * X_units, Y * Y_units, pairs, standardize=True, **options)
    np.testing.assert_allclose(found.ridged_correlations_, by_hand.ridged_correlations_, atol=1e-9)
    np.testing.assert_allclose(found.correlations_, by_hand.correlations_, atol=1e-9)
    expected = by_hand.transform(X / X[pairs].std(axis=0))
    np.testing.assert_allclose(np.abs(found.transform(X * X_units)), np.abs(expected), atol=1e-7)


@settings(max_examples=25, deadline=None)
@given(
    images=st.integers(4, 40),
    p=st.integers(1, 20),
    q=st.integers(1, 20),
    reg_x=st.sampled_from([1e-3, 0.1, 3.0]),
    reg_y=st.sampled_from([1e-3, 0.1, 3.0]),
    seed=st.integers(0, 99),
)
def test_neither_units_nor_routes_change_a_standardized_fit(images, p, q, reg_x, reg_y, seed):
    X, Y, pairs = data(images, 2, p, q, seed)
    options = {"n_components": min(2, p, q), "reg_x": reg_x, "reg_y": reg_y, "standardize": True}
    expected = fitted_by("primal", X, Y, pairs, **options)
    x, y = expected.transform(X[pairs], Y)
    plain = [np.corrcoef(a, b)[0, 1] for a, b in zip(x.T, y.T)]
    np.testing.assert_allclose(expected.correlations_, plain, atol=1e-6)
    units = 2.0 ** np.random.default_rng(seed).integers(-9, 10, p + q)
    for route in ("primal", "dual", "streaming"):
        found = fitted_by(route, X * units[:p], Y * units[p:], pairs, **options)
        np.testing.assert_allclose(found.ridged_correlations_, expected.ridged_correlations_, atol=1e-6)
        np.testing.assert_allclose(found.correlations_, expected.correlations_, atol=1e-5)


def test_sums_can_be_solved_standardized_and_not():
    X, Y, pairs = data()
    sums = CovarianceSums.from_blocks(X, [Y[:100], Y[100:]], pairs)
    for standardize in (True, False, True):
        [found] = RegularizedCCA(3, standardize=standardize).path(sums, 0.1, 0.1)
        alone = RegularizedCCA(3, standardize=standardize, reg_x=0.1, reg_y=0.1).fit(X, Y, pairs)
        np.testing.assert_allclose(found.transform(X), alone.transform(X), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("route", ["primal", "dual"])
def test_standardizing_leaves_constant_features_alone(route, dtype):
    X, Y, pairs = data()
    plain = RegularizedCCA(3, standardize=True, method=route).fit(X, Y, pairs)
    X = np.hstack((X, np.full((len(X), 2), 1234.567))).astype(dtype)
    cca = RegularizedCCA(3, standardize=True, method=route).fit(X, Y.astype(dtype), pairs)
    assert not np.any(np.abs(cca.x_weights_[-2:]) > 1e-3)
    np.testing.assert_allclose(cca.correlations_, plain.correlations_, atol=1e-4)


def test_a_folder_of_version_0_3_is_loaded(tmp_path):
    X, Y, pairs = data()
    cca = RegularizedCCA(3, reg_x=0.1).fit(X, Y, pairs)
    cca.save(tmp_path / "cca")
    path = tmp_path / "cca" / "config.json"
    for scale, power in (("correlation", 1), (None, 0), (4.0, 4)):
        config = json.loads(path.read_text())
        config.pop("correlations", None)
        config["params"].pop("standardize", None)
        config["params"]["scale"] = scale
        path.write_text(json.dumps(config))
        loaded = RegularizedCCA.load(tmp_path / "cca")
        assert loaded.correlation_power == power
        np.testing.assert_allclose(loaded.correlations_, cca.correlations_, rtol=1e-10)


@pytest.mark.parametrize("method", ["primal", "dual"])
@pytest.mark.parametrize("sizes", [(12, 20), (20, 12)])
def test_a_path_equals_separate_fits(method, sizes):
    X, Y, pairs = data(p=sizes[0], q=sizes[1])
    cca = RegularizedCCA(4, method=method)
    path = list(cca.path(cca.statistics(X, Y, pairs), reg_x=[0.1, 1], reg_y=[0.01, 0.5, 2]))
    assert {(each.reg_x, each.reg_y) for each in path} == {(x, y) for x in (0.1, 1) for y in (0.01, 0.5, 2)}
    for each in path:
        alone = RegularizedCCA(4, reg_x=each.reg_x, reg_y=each.reg_y).fit(X, Y, pairs)
        np.testing.assert_allclose(each.ridged_correlations_, alone.ridged_correlations_, atol=1e-10)
        np.testing.assert_allclose(each.transform(X), alone.transform(X), atol=1e-8)
        np.testing.assert_allclose(each.transform_y(Y), alone.transform_y(Y), atol=1e-8)


def test_the_best_of_a_grid_by_a_held_out_criterion():
    X, Y, pairs = data(images=200)
    train, held_out = pairs < 150, pairs >= 150
    sums = CovarianceSums.from_blocks(X, [Y[train]], pairs[train])

    def held_out_correlation(cca):
        x, y = cca.transform(X[pairs[held_out]], Y[held_out])
        return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(x.T, y.T)]))

    path = list(RegularizedCCA(8).path(sums, reg_x=[1e-6, 0.1], reg_y=[1e-6, 0.1, 10]))
    assert len(path) == 6
    best = max(path, key=held_out_correlation)
    score = best.score(X, Y[held_out], pairs[held_out])
    assert score == pytest.approx(held_out_correlation(best))
    assert not list(best.path(sums, reg_x=[], reg_y=[1]))
    [one] = RegularizedCCA(8).path(sums, reg_x=0.1, reg_y=np.float32(0.5))
    assert (one.reg_x, one.reg_y) == (0.1, 0.5)
    for wrong in (-1, [0.1, np.nan], [[0.1]]):
        with refuses("wrong_parameter"):
            list(best.path(sums, reg_x=wrong, reg_y=[1]))


def test_the_score_is_the_mean_correlation_and_serves_a_grid_search():
    X, Y, pairs = data(images=200, per_image=1)
    Y = Y[np.argsort(pairs)]
    cca = RegularizedCCA(3).fit(X[:150], Y[:150])
    x, y = cca.transform(X[150:], Y[150:])
    expected = np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(x.T, y.T)])
    assert cca.score(X[150:], Y[150:]) == pytest.approx(expected)
    search = GridSearchCV(RegularizedCCA(3), {"reg_y": [1e-6, 0.01, 100]}, cv=4).fit(X, Y)
    assert search.best_params_["reg_y"] in (1e-6, 0.01)
    assert search.best_score_ > 0.5
    assert RegularizedCCA(1).fit(np.ones_like(X), Y).score(X, Y) == 0
    with refuses("too_few"):
        cca.score(X[:1], Y[:1])


@pytest.mark.parametrize("route", ["primal", "dual", "streaming"])
def test_sizes_whose_squares_no_float_holds_are_named(route):
    X, Y, pairs = data()
    expected = fitted_by(route, X, Y, pairs, n_components=3).ridged_correlations_
    for factor in (1e-120, 1e120):
        for x, y in ((X * factor, Y), (X, Y * factor), (X * factor, Y * factor)):
            found = fitted_by(route, x, y, pairs, n_components=3)
            np.testing.assert_allclose(found.ridged_correlations_, expected, atol=1e-9)
    for factor, too_large in ((1e200, True), (1e-200, False)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with refuses("out_of_range", side="X", too_large=too_large):
                fitted_by(route, X * factor, Y, pairs, n_components=3)
            with refuses("out_of_range", side="Y", too_large=too_large):
                fitted_by(route, X, Y * factor, pairs, n_components=3)


def test_it_chooses_the_cheaper_method_and_says_so():
    few = data(images=20, per_image=1, p=5, q=300)
    many = data(images=300, per_image=1, p=5, q=20)
    assert RegularizedCCA(2).fit(*few).method_ == "dual"
    assert RegularizedCCA(2).fit(*many).method_ == "primal"


@pytest.mark.parametrize("method", ["primal", "dual"])
@pytest.mark.parametrize("shape", ["tall", "fewer images than features"])
def test_signs_are_fixed(method, shape):
    X, Y, pairs = data(**SHAPES[shape])
    weights = RegularizedCCA(5, method=method).fit(X, Y, pairs).x_weights_
    assert (weights[np.abs(weights).argmax(axis=0), np.arange(5)] > 0).all()


def test_single_precision_in_and_out():
    X, Y, pairs = data()
    X, Y = X.astype(np.float32), Y.astype(np.float32)
    x, y = RegularizedCCA(3).fit(X, Y, pairs).transform(X, Y)
    assert x.dtype == y.dtype == np.float32


def test_saved_and_loaded_it_gives_the_same_bits(tmp_path):
    X, Y, pairs = data()
    cca = RegularizedCCA(3, reg_x=0.1, correlation_power=2.5, standardize=True).fit(X, Y, pairs)
    cca.save(tmp_path / "cca")
    loaded = RegularizedCCA.load(tmp_path / "cca")
    assert loaded.get_params() == cca.get_params()
    assert (loaded.method_, loaded.x_ridge_, loaded.y_ridge_) == (cca.method_, cca.x_ridge_, cca.y_ridge_)
    np.testing.assert_array_equal(loaded.correlations_, cca.correlations_)
    np.testing.assert_array_equal(loaded.transform(X), cca.transform(X))
    np.testing.assert_array_equal(loaded.transform_y(Y), cca.transform_y(Y))


def test_a_second_fit_equals_the_first_of_a_new_estimator():
    X, Y, pairs = data()
    others = pd.DataFrame(data(p=5, q=7, seed=1)[0], columns=list("abcde")), *data(p=5, q=7, seed=1)[1:]
    used = RegularizedCCA(3)
    used.set_params(reg_x=1.0, reg_y=0.1).fit(*others)
    used.set_params(reg_x=0.01, reg_y=0.01).transform(others[0])
    for as_blocks in (False, True):
        new = RegularizedCCA(3).fit(X, iter([Y]) if as_blocks else Y, pairs)
        used.fit(X, iter([Y]) if as_blocks else Y, pairs)
        assert set(vars(used)) == set(vars(new))
        for name in (
            "correlations_",
            "ridged_correlations_",
            "x_weights_",
            "y_weights_",
            "x_mean_",
            "y_mean_",
        ):
            np.testing.assert_array_equal(getattr(used, name), getattr(new, name), strict=True)
        assert (used.method_, used.x_ridge_, used.y_ridge_) == (new.method_, new.x_ridge_, new.y_ridge_)
        np.testing.assert_array_equal(used.transform(X), new.transform(X))
        np.testing.assert_array_equal(used.transform_y(Y), new.transform_y(Y))


@pytest.mark.parametrize("pairs", [None, [0, 1], [0.0, 1.0, 1.0], [0, 1, 2]])
def test_wrong_pairs_are_named(pairs):
    with refuses("wrong_pairs"):
        RegularizedCCA().fit(np.eye(2), np.eye(3), pairs)


def test_other_mistakes_are_named():
    X, Y, pairs = data()
    with refuses("wrong_parameter"):
        RegularizedCCA(13).fit(X, Y, pairs)
    with refuses("wrong_shape"):
        RegularizedCCA(2).fit(X, Y, pairs).transform_y(Y[:, :3])


def test_fit_transform_returns_both_sides_as_scikit_learns_cca_does():
    X, Y, pairs = data()
    both = RegularizedCCA(3).fit_transform(X, Y, pairs)
    expected = RegularizedCCA(3).fit(X, Y, pairs).transform(X, Y)
    assert len(both) == len(expected) == len(CCA(2).fit_transform(X[pairs], Y)) == 2
    for found, points in zip(both, expected):
        np.testing.assert_array_equal(found, points)
    assert [side.shape for side in RegularizedCCA(3).fit_transform(X[pairs], y=Y)] == [(len(Y), 3)] * 2


def test_save_keeps_the_names_of_the_features(tmp_path):
    X, Y, pairs = data()
    frame = pd.DataFrame(X, columns=[f"feature {i}" for i in range(X.shape[1])])
    RegularizedCCA(2).fit(frame, Y, pairs).save(tmp_path / "cca")
    loaded = RegularizedCCA.load(tmp_path / "cca")
    assert loaded.feature_names_in_.tolist() == frame.columns.tolist()
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(frame.rename(columns={"feature 0": "other"}))


ONLY_X = "fit_transform returns both sides; scikit-learn's checks exempt only its own CCA, by its name"


@parametrize_with_checks(
    [RegularizedCCA()],
    expected_failed_checks=lambda estimator: {
        "check_transformer_general": ONLY_X,
        "check_transformer_data_not_an_array": ONLY_X,
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("n_components", [100, None])
def test_fewer_images_than_features_do_not_change_the_number_of_components(n_components):
    """80 images span 79 directions; the others have no correlation in either method."""
    rng = np.random.default_rng(0)
    X, pairs = rng.standard_normal((80, 130)), np.repeat(np.arange(80), 5)
    Y = X[pairs] @ rng.standard_normal((130, 450)) + rng.standard_normal((400, 450))
    primal, dual = (
        RegularizedCCA(n_components, correlation_power=0, method=method).fit(X, Y, pairs)
        for method in ("primal", "dual")
    )
    assert dual.n_components_ == primal.n_components_ == (n_components or 130)
    assert dual.transform(X).shape == (80, dual.n_components_)
    np.testing.assert_allclose(dual.ridged_correlations_, primal.ridged_correlations_, atol=1e-6)
    np.testing.assert_allclose(dual.x_weights_[:, :79], primal.x_weights_[:, :79], atol=1e-6)
    assert not dual.x_weights_[:, 79:].any()
    assert not dual.y_weights_[:, 79:].any()


def test_rows_far_from_zero_are_projected_as_exactly_as_their_type_allows():
    """A float32 model has a float64 mean, which float64 rows need whole."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((300, 5)), rng.standard_normal((300, 6))
    cca = RegularizedCCA(3, correlation_power=0).fit((X + 1e4).astype(np.float32), Y.astype(np.float32))
    rows = X + 1e4
    expected = (rows - cca.x_mean_) @ cca.x_weights_.astype(np.float64)
    np.testing.assert_allclose(cca.transform(rows), expected, atol=1e-6)


def test_both_sides_honor_set_output():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 60, 3))
    pairs = rng.permutation(60)
    plain = RegularizedCCA(2).fit(X, Y, pairs)
    framed = RegularizedCCA(2).set_output(transform="pandas").fit(X, Y, pairs)
    labels = [f"s{number}" for number in range(60)]
    x, y = framed.transform(X, pd.DataFrame(Y, labels))
    for found in (x, y, framed.transform_y(Y)):
        assert isinstance(found, pd.DataFrame)
        assert list(found.columns) == list(framed.get_feature_names_out())
    assert list(y.index) == labels
    np.testing.assert_array_equal(y.to_numpy(), plain.transform_y(Y))
    assert isinstance(plain.transform_y(Y), np.ndarray)
    assert framed.score(X, Y, pairs) == plain.score(X, Y, pairs)


def in_single(n, p, q, scale=1.0, offset=0.0):
    """Two sides in float32 that share ten directions; their features fall in size to `scale`."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((n, 10)) * np.geomspace(1, 0.1, 10)
    sides = [
        shared @ rng.standard_normal((10, size)) + 0.3 * rng.standard_normal((n, size)) for size in (p, q)
    ]
    return [(side * np.geomspace(1, scale, side.shape[1]) + offset).astype(np.float32) for side in sides]


@pytest.fixture
def residuals(monkeypatch):
    """The residuals that fits in float32 are judged by."""
    seen = []

    def watched(*given):
        seen.append(_largest_residual(*given))
        return seen[-1]

    monkeypatch.setattr("fishermix.cca.estimator._largest_residual", watched)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("method", ["primal", "dual"])
@pytest.mark.parametrize("given", [{}, {"scale": 1e-3}, {"offset": 1000.0}])
@pytest.mark.parametrize("paired", [False, True])
def test_float32_agrees_with_the_float64_oracle_within_its_residual(method, given, paired, residuals):
    X, Y = in_single(2600, 70, 90, **given)
    X, pairs = (X[::2], np.repeat(np.arange(1300), 2)) if paired else (X, None)
    rows = X if pairs is None else X[pairs]
    fitted = RegularizedCCA(8, reg_x=0.02, reg_y=0.05, method=method).fit(X, Y, pairs)
    correlations, u, _ = dense_oracle(rows.astype(np.float64), Y.astype(np.float64), 0.02, 0.05, 8)
    [residual] = residuals
    assert residual < LARGEST_RESIDUAL
    assert np.abs(fitted.ridged_correlations_ - correlations).max() < residual < 1e-4
    points = (rows - fitted.x_mean_) @ (u * correlations)
    np.testing.assert_allclose(np.abs(fitted.transform(rows)), np.abs(points), atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("given", [{"scale": 1e-3}, {"offset": 1e4}])
def test_a_large_residual_in_float32_has_the_fit_done_again_in_float64(given, residuals):
    """The ridge is small, and n is too: the rounding of inner products in float32 is as large as it."""
    X, Y = in_single(300, 90, 90, **given)
    cca = RegularizedCCA(30, reg_x=0.005, reg_y=0.005, method="dual")
    fitted = cca.fit(X, Y)
    assert len(residuals) == 1
    assert residuals[0] > LARGEST_RESIDUAL
    [double] = cca.path(cca.statistics(X, Y), 0.005, 0.005)
    np.testing.assert_array_equal(fitted.ridged_correlations_, double.ridged_correlations_)
    np.testing.assert_array_equal(fitted.x_weights_, double.x_weights_)
    correlations = dense_oracle(X.astype(np.float64), Y.astype(np.float64), 0.005, 0.005, 30)[0]
    np.testing.assert_allclose(fitted.ridged_correlations_, correlations, atol=1e-7)


@pytest.mark.parametrize("factor", [1e25, 1e-25])
def test_numbers_whose_squares_float32_cannot_hold_are_fitted_in_float64(factor, residuals):
    X, Y = in_single(400, 30, 40)
    plain = RegularizedCCA(5, method="primal").fit(X, Y)
    scaled = RegularizedCCA(5, method="primal").fit(X * np.float32(factor), Y * np.float32(factor))
    assert len(residuals) == 1  # of the first fit
    np.testing.assert_allclose(scaled.ridged_correlations_, plain.ridged_correlations_, atol=1e-6)


def test_directions_that_nothing_correlates_in_are_not_fitted_in_float32(residuals):
    X, Y = in_single(200, 30, 40)
    X[:, 3:] = X[:, :1]
    fitted = RegularizedCCA(10, method="primal").fit(X, Y)
    assert residuals == [np.inf]
    assert np.isfinite(fitted.transform(X)).all()
