"""The estimators as scikit-learn wants them: its checks, its messages, posteriors, saving."""

import warnings

import numpy as np
import pytest
from fishermix.mixture import (
    Gaussian,
    GaussianMixture,
    HybridMixture,
    LaplacianMixture,
    Logistic,
    Mixture,
    StudentT,
    register_family,
)
from fishermix.mixture.initialization import merge_duplicates
from fishermix.mixture.saved import pack_mixture, unpack_mixture
from fishermix.rows import count_threads
from refuses import refuses
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    parametrize_with_checks,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
FITTED = ("weights_", "locations_", "scales_", "choice_", "lower_bounds_")


@pytest.mark.slow
@parametrize_with_checks(
    [
        GaussianMixture(n_components=1, random_state=0),
        LaplacianMixture(n_components=1, random_state=0),
        HybridMixture(n_components=2, random_state=0, max_iter=20),
        Mixture(n_components=1, families=("gaussian", "logistic"), random_state=0, max_iter=20),
    ]
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return np.r_[rng.normal(size=(200, 3)), rng.laplace(size=(200, 3)) + 6, rng.laplace(size=(200, 3)) - 6]


def same(a, b):
    for name in FITTED:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize(
    ("parameters", "data", "message"),
    [
        ({}, np.full((9, 2), np.nan), "Input X contains NaN"),
        ({}, np.array([[np.inf, 1.0], [1.0, 2.0], [1.0, 1.0]]), "Input X contains infinity"),
        ({}, np.zeros((0, 3)), "minimum of 2 is required"),
        ({}, np.zeros(5), "Expected 2D array, got 1D array"),
        (
            {"n_components": 4},
            np.zeros((3, 2)),
            "n_samples >= n_components but got n_components = 4, n_samples = 3",
        ),
        ({"n_components": 0}, np.zeros((3, 2)), "'n_components' parameter of HybridMixture must be an int"),
        ({"tol": -1}, np.zeros((3, 2)), "'tol' parameter"),
        ({"init_params": "k-means"}, np.zeros((3, 2)), "'init_params' parameter"),
        ({"min_scale": 0}, np.zeros((3, 2)), "'min_scale' parameter"),
        (
            {"locations_init": [[1.0]]},
            np.eye(3),
            r"'locations_init' should be .* shape \(2, 3\)",
        ),
        ({"scales_init": np.zeros((2, 3))}, np.eye(3), "'scales_init' should be positive"),
        ({"weights_init": [0.5, 0.6]}, np.eye(3), "'weights_init' should sum to 1"),
    ],
)
def test_messages(parameters, data, message):
    with pytest.raises(ValueError, match=message):
        HybridMixture(**{"n_components": 2, **parameters}).fit(data)


def test_sample_weight_messages(X):
    for weight in (np.zeros(len(X)), -np.ones(len(X)), [1.0]):
        with refuses("wrong_shape"):
            HybridMixture(2).fit(X, sample_weight=weight)
    only_one = np.zeros(len(X))
    only_one[0] = 1
    with pytest.raises(ValueError, match="at least n_components = 2 rows with a positive sample_weight"):
        HybridMixture(2).fit(X, sample_weight=only_one)


def test_families_are_a_list_of_names_or_objects(X):
    assert Mixture(2, families=["laplace", StudentT(3)]).fit(X).families_[1] == StudentT(3)
    for families in ([], ["cauchy"], [3], [Logistic], ["gaussian", "laplace", Gaussian()]):
        with refuses("wrong_parameter"):
            Mixture(2, families=families).fit(X)
    two = Mixture(2, families=[StudentT(3), StudentT(4)], random_state=0, max_iter=2).fit(X)
    assert two.families_ == [StudentT(3), StudentT(4)]
    for not_a_class in (Logistic(), "logistic", int):
        with refuses("wrong_parameter"):
            register_family(not_a_class)


@pytest.mark.parametrize("name", [Mixture, GaussianMixture, LaplacianMixture, HybridMixture])
def test_a_second_fit_equals_the_first_of_a_new_object(name, X):
    """Nothing is left of other data, other dimensions and batches: all public attributes are the same."""
    used = name(2, random_state=0).fit(X[:100, :2]).partial_fit(X[100:150, :2])
    used.set_params(n_components=3).fit(X)
    new = name(3, random_state=0).fit(X)
    attributes = {key for key in vars(new) if key.endswith("_") and not key.startswith("_")}
    assert attributes == {key for key in vars(used) if key.endswith("_") and not key.startswith("_")}
    assert {*FITTED, "families_", "n_iter_", "converged_", "n_features_in_"} <= attributes
    for key in attributes:
        np.testing.assert_array_equal(getattr(used, key), getattr(new, key), err_msg=key, strict=True)
    for (config, tensors), (expected, arrays) in [(pack_mixture(used), pack_mixture(new))]:
        assert config == expected
        assert tensors.keys() == arrays.keys()
        assert all(np.array_equal(tensors[key], arrays[key]) for key in arrays)


def test_not_fitted(X):
    with pytest.raises(NotFittedError):
        HybridMixture(2).predict(X)


@pytest.mark.parametrize("init_params", ["k-means++", "kmeans", "random"])
def test_random_state_decides_everything(X, init_params):
    first, second = (HybridMixture(3, init_params=init_params, random_state=5).fit(X) for _ in range(2))
    same(first, second)
    same(first, clone(first).fit(X))
    others = [HybridMixture(12, init_params=init_params, random_state=seed).fit(X) for seed in (5, 6)]
    assert others[0].lower_bounds_ != others[1].lower_bounds_  # three clusters may be found from any seed


@pytest.mark.parametrize("init_params", ["k-means++", "kmeans", "random"])
@pytest.mark.parametrize("name", [Mixture, GaussianMixture, LaplacianMixture, HybridMixture])
def test_weights_are_repetitions_and_order_does_not_matter(name, init_params):
    for k, seed in ((2, 0), (3, 1)):
        estimator = name(k, init_params=init_params, random_state=seed)
        check_sample_weight_equivalence_on_dense_data(name.__name__, estimator)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_merged_in_the_order_of_their_numbers(dtype):
    rng = np.random.default_rng(0)
    rows = (rng.integers(-2, 3, (300, 3)) * [1, 1e-30, 1e30]).astype(dtype)
    rows[::7] *= -1  # negative zeros
    weight = rng.integers(1, 4, 300)
    distinct, total = merge_duplicates(rows, weight)
    expected, counts = np.unique(np.repeat(rows, weight, axis=0) + 0.0, axis=0, return_counts=True)
    np.testing.assert_array_equal(distinct, expected)
    np.testing.assert_array_equal(total, counts)


def test_prediction_scores_and_samples(X):
    mixture = HybridMixture(3, random_state=0).fit(X)
    posterior = mixture.predict_proba(X)
    np.testing.assert_allclose(posterior.sum(axis=1), 1)
    np.testing.assert_array_equal(mixture.predict(X), posterior.argmax(axis=1))
    np.testing.assert_array_equal(clone(mixture).fit_predict(X), mixture.predict(X))
    assert mixture.score(X) == pytest.approx(mixture.score_samples(X).mean())
    rows, labels = mixture.sample(30_000)
    assert rows.shape == (30_000, 3)
    assert mixture.score(rows) == pytest.approx(mixture.score(X), abs=0.1)
    np.testing.assert_allclose(np.bincount(labels) / 30_000, mixture.weights_, atol=0.02)
    again = HybridMixture(3, random_state=0, tol=1e-6).fit(rows)
    assert again.score(rows) == pytest.approx(mixture.score(rows), abs=0.02)
    with pytest.raises(ValueError, match="at least one"):
        mixture.sample(0)


def test_a_memory_mapped_array_gives_the_same_bits(X, tmp_path):
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    same(HybridMixture(3, random_state=0).fit(mapped), HybridMixture(3, random_state=0).fit(np.array(mapped)))


@pytest.mark.parametrize(
    "mixture",
    [
        GaussianMixture(2, random_state=0, tol=1e-4),
        HybridMixture(2, random_state=0),
        Mixture(2, families=[Gaussian(), Logistic(), StudentT(2.5)], random_state=0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_save_and_load_give_the_same_bits(mixture, X, tmp_path):
    mixture = clone(mixture).fit(X)
    mixture.save(tmp_path / "m")
    loaded = Mixture.load(tmp_path / "m")
    assert type(loaded) is type(mixture)
    assert loaded.families_ == mixture.families_
    assert (loaded.tol, loaded.converged_, loaded.n_iter_) == (
        mixture.tol,
        mixture.converged_,
        mixture.n_iter_,
    )
    same(loaded, mixture)
    np.testing.assert_array_equal(loaded.predict_proba(X), mixture.predict_proba(X))
    for one in (loaded, mixture):
        one.set_params(warm_start=True, max_iter=3).fit(X)
    same(loaded, mixture)
    with refuses("wrong_folder"):
        LaplacianMixture.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("tensor", "value", "code"),
    [
        ("weights", [0.9, 0.9], "wrong_parameter"),
        ("choice", [[0, 9, 0], [0, 0, 0]], "wrong_parameter"),
        ("scale", -np.ones((2, 2, 3)), "wrong_parameter"),
        ("location", np.full((2, 2, 3), np.nan), "damaged"),
        ("location", np.ones((2, 2, 2)), "damaged"),
    ],
)
def test_a_damaged_folder_is_refused(tensor, value, code, X):
    config, tensors = pack_mixture(HybridMixture(2, random_state=0).fit(X))
    tensors[tensor] = np.asarray(value, tensors[tensor].dtype)
    with refuses(code):
        unpack_mixture(config, tensors, "somewhere")


def test_verbose_says_something(X, capsys):
    """Of a quick fit too, where there is no terminal: what the first and the last iteration came to."""
    mixture = HybridMixture(2, random_state=0, verbose=True).fit(X)
    first, last = capsys.readouterr().err.splitlines()
    assert first == f"fitting HybridMixture: 1/100 after 0 s (log likelihood {mixture.lower_bounds_[0]:.4f})"
    assert last.startswith(f"fitting HybridMixture: {mixture.n_iter_}/100 after 0 s (log likelihood")
    assert last.endswith(f"{mixture.lower_bounds_[-1]:.4f}, done)")
    mixture.set_params(verbose=False).fit(X)
    assert capsys.readouterr().err == ""


def test_n_jobs_is_counted_as_in_joblib(X, monkeypatch):
    monkeypatch.setattr("fishermix.rows.threads.available_threads", lambda: 6)
    assert [count_threads(n) for n in (None, -1, -2, -6, -99, 1, 9)] == [6, 6, 5, 1, 1, 1, 9]
    plain = HybridMixture(2, random_state=0).fit(X)
    for n_jobs in (-1, -2, -99):
        mixture = HybridMixture(2, random_state=0, n_jobs=n_jobs).fit(X)
        same(mixture, plain)
        np.testing.assert_array_equal(mixture.predict(X), plain.predict(X))
    with pytest.raises(ValueError, match="'n_jobs' parameter"):
        HybridMixture(2, n_jobs=0).fit(X)


def test_rows_that_are_not_in_memory_are_predicted_too(X, tmp_path):
    X = np.repeat(X, 8, axis=0)
    np.save(tmp_path / "rows.npy", X)
    np.save(tmp_path / "narrow.npy", X[:, :2])
    np.save(tmp_path / "none.npy", X[:0])
    mixture = HybridMixture(3, random_state=0, max_iter=5).fit(tmp_path / "rows.npy")
    for rows in (str(tmp_path / "rows.npy"), np.load(tmp_path / "rows.npy", mmap_mode="r"), np.split(X, 3)):
        np.testing.assert_array_equal(mixture.predict_proba(rows), mixture.predict_proba(X))
        np.testing.assert_array_equal(mixture.predict(rows), mixture.predict(X))
        np.testing.assert_array_equal(mixture.score_samples(rows), mixture.score_samples(X))
        assert (mixture.score(rows), mixture.bic(rows)) == (mixture.score(X), mixture.bic(X))
    for wrong, message in (("narrow.npy", "is expecting 3 features"), ("none.npy", "There are no rows")):
        with pytest.raises(ValueError, match=message):
            mixture.predict(tmp_path / wrong)
    with refuses("not_found"):
        mixture.score("r.npy")


def test_one_warning_when_em_does_not_converge(X):
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 iterations"):
        HybridMixture(3, random_state=0, max_iter=2).fit(X)
