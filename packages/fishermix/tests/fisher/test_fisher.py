"""Fisher vectors against the reference, finite differences, scikit-image and the laws, under every option."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fishermix import FisherEncoder, GaussianMixture, Mixture, OnRows
from fishermix.errors import FishermixError, FishermixWarning
from fishermix.fisher.reference import fisher_vector
from fishermix.fisher.vectors import DENSE_NUMBERS, FisherVectors
from fishermix.mixture import Family, Gaussian, Laplace, Logistic, StudentT
from fishermix.mixture.parameters import FEW_ROWS
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from refuses import refuses
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture as TheirMixture
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

HUGE_ROWS = DENSE_NUMBERS // 4  # of a set that is encoded in parts, for a mixture of 4 components


class Cauchy(Family):
    """A family of a user, that the encoder cannot know."""

    name = "cauchy"

    def log_density(self, z):
        return -np.log(np.pi) - np.log1p(z * z)

    def location_score(self, z):
        return 2 * z / (1 + z * z)

    def sample(self, rng, size):
        return rng.standard_cauchy(size)


def mixture_of(*families, K=4, D=3, seed=0):
    rng = np.random.default_rng(seed)
    mixture = Mixture(K, families=families)
    mixture.weights_ = rng.dirichlet(np.full(K, 3.0))
    mixture.locations_ = rng.normal(size=(K, D))
    mixture.scales_ = rng.uniform(0.5, 1.5, (K, D))
    mixture.choice_ = rng.integers(0, len(families), (K, D))
    mixture.families_ = list(families)
    mixture.n_features_in_ = D
    return mixture


FAMILIES = {
    "gaussian": (Gaussian(),),
    "laplace": (Laplace(),),
    "hybrid": (Gaussian(), Laplace()),
    "logistic": (Logistic(),),
    "all": (Gaussian(), Laplace(), Logistic(), StudentT(5.0), Cauchy()),
}
every_family = pytest.mark.parametrize("families", FAMILIES.values(), ids=FAMILIES.keys())
RNG = np.random.default_rng(1)
SIZES = [1, 5, 40, 2, 30, 7]
SETS = [RNG.normal(size=(n, 3)) * 1.3 for n in SIZES]  # 85 rows: more than the numpy path takes
ROWS, OFFSETS = np.concatenate(SETS), np.concatenate([[0], np.cumsum(SIZES)])


@pytest.mark.slow
@every_family
@pytest.mark.parametrize(
    "options",
    [{}, {"power": 1}, {"power": 0.3}, {"norm": None}, {"power": 1, "norm": None}, {"norm": "intra"}],
)
def test_equals_the_reference(families, options):
    mixture = mixture_of(*families)
    encoder = FisherEncoder.from_fitted(mixture, **options, threshold=0)
    expected = [fisher_vector(members, mixture, **options) for members in SETS]
    assert_allclose(
        encoder.transform(SETS), expected, rtol=1e-7, atol=1e-9
    )  # all sets: compiled where it can be
    for members, row in zip(SETS, expected):
        assert_allclose(encoder.transform([members])[0], row, rtol=1e-7, atol=1e-9)  # few rows: by numpy
        pair = encoder.transform([members, ROWS])  # few sets: finished by numpy
        assert_allclose(pair[0], row, rtol=1e-7, atol=1e-9)


def test_the_reference_refuses_an_unknown_normalization():
    with refuses("wrong_parameter"):
        fisher_vector(SETS[0], mixture_of(Gaussian()), norm="max")


@every_family
def test_is_the_gradient_of_the_log_likelihood(families):
    """scale * gradient / sqrt(N tau information), by central differences of `score_samples`."""
    mixture = mixture_of(*families)
    members = SETS[2]
    encoder = FisherEncoder.from_fitted(mixture, power=1, norm=None, threshold=0)
    found = encoder.transform([members]).reshape(2, 4, 3)
    assert_allclose(fisher_vector(members, mixture, power=1, norm=None), found.ravel(), rtol=1e-7, atol=1e-9)
    step = 1e-6
    for half, name in enumerate(("locations_", "scales_")):
        for k in range(4):
            for d in range(3):
                family = mixture.families_[mixture.choice_[k, d]]
                information = (family.location_information, family.scale_information)[half]
                values = getattr(mixture, name)
                start, ends = values[k, d], []
                for sign in (1, -1):
                    values[k, d] = start + sign * step
                    ends.append(mixture.score_samples(members).sum())
                values[k, d] = start
                gradient = (ends[0] - ends[1]) / (2 * step)
                tau = mixture.weights_[k]
                expected = mixture.scales_[k, d] * gradient / np.sqrt(len(members) * tau * information)
                assert_allclose(found[half, k, d], expected, rtol=2e-4, atol=1e-6)


def test_gaussian_equals_scikit_image():
    """Theirs begins with K weight derivatives, and its sigma half has the opposite sign."""
    from skimage.feature import fisher_vector as skimage_vector

    mixture = mixture_of(Gaussian(), K=5, D=4)
    members = np.random.default_rng(2).normal(size=(200, 4))
    theirs = TheirMixture(5, covariance_type="diag")
    theirs.weights_, theirs.means_, theirs.covariances_ = (
        mixture.weights_,
        mixture.locations_,
        mixture.scales_**2,
    )
    theirs.precisions_cholesky_ = 1 / mixture.scales_
    whole = skimage_vector(members, theirs, improved=False)
    peer = whole[5:].reshape(2, 20) * [[1], [-1]]
    ours = (
        FisherEncoder.from_fitted(mixture, power=1, norm=None, threshold=0)
        .transform([members])
        .reshape(2, 20)
    )
    # Up to the factor sqrt(N) that they leave out, which the unit length removes.
    assert_allclose(ours / np.linalg.norm(ours), peer / np.linalg.norm(peer), atol=1e-10)


@every_family
@pytest.mark.parametrize("options", [{"power": 1, "norm": None}, {}, {"norm": "intra"}, {"power": 0.3}])
def test_gradients_by_the_weights_follow_the_others(families, options):
    """By the numbers whose softmax are the weights: the sum of T_k - tau_k, divided by sqrt(N tau_k)."""
    mixture = mixture_of(*families)
    bare = FisherEncoder.from_fitted(mixture, power=1, norm=None, threshold=0).transform(SETS)
    weights = np.array(
        [(mixture.predict_proba(members) - mixture.weights_).sum(axis=0) for members in SETS]
    ) / np.sqrt(np.outer(SIZES, mixture.weights_))
    expected = np.hstack([bare, weights])
    power, norm = options.get("power", 0.5), options.get("norm", "l2")
    expected = np.sign(expected) * np.abs(expected) ** power
    if norm == "intra":
        blocks = [*np.split(expected[:, :24], 8, axis=1), expected[:, 24:]]
        expected = np.hstack([block / np.linalg.norm(block, axis=1, keepdims=True) for block in blocks])
    if norm is not None:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    encoder = FisherEncoder.from_fitted(mixture, threshold=0, weight_gradients=True, **options)
    found = encoder.transform(SETS)
    assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    assert_array_equal(encoder.transform(SETS[2:3])[0], found[2])
    assert encoder.get_feature_names_out()[24:].tolist() == ["weight_0", "weight_1", "weight_2", "weight_3"]
    single = encoder.transform([members.astype(np.float32) for members in SETS])
    assert single.dtype == np.float32
    assert_allclose(single, expected, atol=1e-3)


@every_family
def test_intra_normalization_scales_each_block_first(families):
    mixture = mixture_of(*families)
    blocks = FisherEncoder.from_fitted(mixture, norm=None).transform(SETS).reshape(len(SETS), 8, 3)
    blocks /= np.linalg.norm(blocks, axis=2, keepdims=True)
    found = FisherEncoder.from_fitted(mixture, norm="intra").transform(SETS)
    assert_allclose(found, blocks.reshape(len(SETS), -1) / np.sqrt(8), atol=1e-12)


def test_an_empty_set_has_no_gradients_by_the_weights():
    encoder = FisherEncoder.from_fitted(mixture_of(Gaussian()), norm="intra", weight_gradients=True)
    with pytest.warns(UserWarning, match="1 of 2"):
        found = encoder.transform([np.zeros((0, 3)), SETS[1]])
    assert not found[0].any()
    assert np.isfinite(found).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("families", [FAMILIES["hybrid"], FAMILIES["all"]])
def test_a_huge_set_equals_its_parts(families, dtype):
    mixture = mixture_of(*families)
    rows = np.random.default_rng(3).normal(size=(HUGE_ROWS + 500, 3)).astype(dtype)
    encoder = FisherEncoder.from_fitted(mixture, power=1, norm=None)
    offsets = [0, 10, 10 + HUGE_ROWS + 100, HUGE_ROWS + 500]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = encoder.transform(rows, offsets)
    assert found.dtype == dtype
    single = encoder.transform(rows, range(len(rows) + 1))
    for row, first, last in zip(found, offsets, offsets[1:]):
        assert_allclose(
            row,
            single[first:last].sum(axis=0) / np.sqrt(last - first),
            atol=2e-3 if dtype == np.float32 else 1e-9,
        )
    assert_allclose(
        np.linalg.norm(FisherEncoder.from_fitted(mixture).transform(rows, offsets), axis=1), 1, rtol=1e-5
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_bits_do_not_depend_on_the_number_of_threads(monkeypatch, dtype):
    mixture = mixture_of(Gaussian(), Laplace(), K=7)
    rows = np.random.default_rng(3).normal(size=(2 * HUGE_ROWS, 3)).astype(dtype)
    offsets = [0, 3, 3, 900, 900 + HUGE_ROWS + 1, len(rows)]
    found = []
    for threads in (1, 3):
        monkeypatch.setattr("fishermix.rows.threads.available_threads", lambda threads=threads: threads)
        with pytest.warns(match="1 of 5 sets are empty"):
            found.append(FisherEncoder.from_fitted(mixture).transform(rows, offsets))
    assert_array_equal(*found)


@pytest.mark.parametrize("families", [FAMILIES["hybrid"], FAMILIES["gaussian"]])
def test_sums_over_blocks_and_groups_of_rows_are_those_of_the_reference(families):
    """With remainders of every size when four or eight entries are added at a time."""
    mixture = mixture_of(*families, K=5)
    for n in range(1, 20):
        rows = np.random.default_rng(n).normal(size=(n, 3))
        found = FisherEncoder.from_fitted(mixture, threshold=0).transform([rows])[0]
        assert_allclose(found, fisher_vector(rows, mixture), rtol=1e-7, atol=1e-9)
    rows = np.random.default_rng(4).normal(size=(1101, 3))
    found = FisherEncoder.from_fitted(mixture, threshold=0).transform([rows])[0]
    assert_allclose(found, fisher_vector(rows, mixture), rtol=1e-7, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["hybrid", "all"]))
def test_laws(seed, name):
    mixture = mixture_of(*FAMILIES[name], seed=seed % 100)
    rng = np.random.default_rng(seed)
    members = rng.normal(size=(rng.integers(1, 90), 3))
    bare = FisherEncoder.from_fitted(mixture, power=1, norm=None).transform
    once = bare([members])
    assert_allclose(bare([rng.permutation(members)]), once, atol=1e-9)
    assert_allclose(bare([np.repeat(members, 2, axis=0)]), once * np.sqrt(2), atol=1e-9)
    cut = rng.integers(0, len(members))
    n, a, b = len(members), members[:cut], members[cut:]
    parts = bare([a, b]) * np.sqrt([[len(a)], [len(b)]]) if cut else None
    if cut:
        assert_allclose(parts.sum(axis=0), once[0] * np.sqrt(n), atol=1e-9)
    assert_allclose(FisherEncoder.from_fitted(mixture).transform([members]), normalised(once), atol=1e-9)


def normalised(bare):
    rooted = np.sign(bare) * np.sqrt(np.abs(bare))
    return rooted / np.linalg.norm(rooted, axis=1, keepdims=True)


def test_a_value_on_the_median_counts_as_below_it():
    mixture = mixture_of(Laplace(), K=1, D=2)
    mixture.weights_ = np.ones(1)
    for copies in (1, 100):
        rows = np.tile(mixture.locations_, (copies, 1))
        found = FisherEncoder.from_fitted(mixture, power=1, norm=None).transform(rows, range(copies + 1))
        assert_allclose(found, np.tile([-1, -1, -1, -1], (copies, 1)))


def object_array(sets):
    array = np.empty(len(sets), dtype=object)
    array[:] = sets
    return array


def test_every_kind_of_input_gives_the_same():
    encoder = FisherEncoder.from_fitted(mixture_of(Gaussian(), Laplace()))
    expected = encoder.transform(SETS)
    for found in (
        encoder.transform(tuple(SETS)),
        encoder.transform(ROWS, OFFSETS),
        encoder.transform(ROWS, offsets=OFFSETS.tolist()),
        encoder.transform((ROWS, OFFSETS)),
        encoder.transform([members.tolist() for members in SETS]),
        encoder.transform(object_array(SETS)),
        encoder.transform(pd.Series(SETS)),
        encoder.transform(members for members in SETS),
    ):
        assert_array_equal(found, expected)
    assert_array_equal(encoder.transform(ROWS), encoder.transform([row[None] for row in ROWS]))
    assert_array_equal(encoder.transform(ROWS.tolist()), encoder.transform(ROWS))
    cube = ROWS[:80].reshape(8, 10, 3)
    assert_array_equal(encoder.transform(cube), encoder.transform(list(cube)))


def test_fit_transform_reads_every_kind_of_input_once():
    encoder = FisherEncoder(GaussianMixture(2, random_state=0))
    expected = encoder.fit(SETS).transform(SETS)
    assert_array_equal(encoder.fit_transform(SETS), expected)
    assert_array_equal(encoder.fit_transform(iter(SETS)), expected)
    assert_array_equal(encoder.fit_transform(ROWS, offsets=OFFSETS), expected)
    assert_array_equal(encoder.fit_transform((ROWS, OFFSETS)), expected)
    with pytest.warns(FishermixWarning):
        assert encoder.fit_transform(np.concatenate([ROWS, ROWS])).shape == (2 * len(ROWS), 12)


def test_float32_gives_float32_close_to_float64():
    encoder = FisherEncoder.from_fitted(mixture_of(Gaussian(), Laplace()))
    single = encoder.transform([members.astype(np.float32) for members in SETS])
    assert single.dtype == np.float32
    assert_allclose(single, encoder.transform(SETS), atol=2e-4)


@pytest.mark.parametrize("copies", [1, 30])
def test_an_empty_set_gives_zeros_and_one_warning(copies):
    encoder = FisherEncoder.from_fitted(mixture_of(Gaussian(), Laplace()))
    with pytest.warns(UserWarning, match=f"{2 * copies} of {3 * copies} sets are empty") as caught:
        found = encoder.transform([np.zeros((0, 3)), SETS[1], np.zeros(0)] * copies)
    assert len(caught) == 1
    assert (found[::3] == 0).all()
    assert (found[2::3] == 0).all()
    assert_allclose(found[1], encoder.transform([SETS[1]])[0], atol=1e-12)
    with pytest.warns(UserWarning, match="2 of 2"):
        assert encoder.transform([np.zeros((0, 3))] * 2).shape == (2, 24)
    assert encoder.transform([]).shape == (0, 24)


def test_a_component_without_weight_gives_zeros():
    mixture = mixture_of(Gaussian(), Laplace())
    mixture.weights_ = np.array([0, 0.5, 0.25, 0.25])
    with np.errstate(divide="ignore"):
        found = FisherEncoder.from_fitted(mixture).transform(SETS).reshape(len(SETS), 2, 4, 3)
    assert (found[:, :, 0] == 0).all()
    assert_allclose(np.linalg.norm(found.reshape(len(SETS), -1), axis=1), 1)


def dense(found, mixture):
    shape = len(found.indptr) - 1, len(mixture.weights_)
    return csr_matrix((found.values, found.components, found.indptr), shape).toarray()


@every_family
@pytest.mark.parametrize("threshold", [0, 1e-6, 1e-2])
def test_posteriors_of_a_few_rows_are_the_mixtures(families, threshold):
    mixture = mixture_of(*families)
    rows = ROWS[:FEW_ROWS]
    found = mixture._parameters.sparse_posteriors(rows, threshold)
    every = mixture.predict_proba(rows)
    assert_allclose(dense(found, mixture), np.where(every >= threshold, every, 0), atol=1e-12)
    far = np.full((1, 3), 1e200)
    found = mixture._parameters.sparse_posteriors(far, 0)
    assert_allclose(dense(found, mixture), mixture.predict_proba(far))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("families", [(Gaussian(),), (Laplace(),), (Gaussian(), Laplace())])
@pytest.mark.parametrize(
    ("n", "K", "D"), [(65, 3, 3), (128, 40, 9), (3000, 7, 70), (1025, 1, 64), (300, 17, 12)]
)
def test_posteriors_of_many_rows_are_those_of_all_densities(families, n, K, D, dtype):
    """Tiles of 128 rows, some not full; more than one panel; dimensions beyond one chunk of the sums."""
    mixture = mixture_of(*families, K=K, D=D)
    rows = np.random.default_rng(1).normal(scale=2, size=(n, D)).astype(dtype)
    every = mixture._parameters.posteriors(rows)[0].T
    for threshold in (0, 1e-6, 0.2):
        found = mixture._parameters.sparse_posteriors(rows, threshold)
        expected = np.where(every >= threshold, every, 0)
        assert_allclose(dense(found, mixture), expected, atol=1e-13)
        assert (found.values > 0).all()
        assert (found.values >= threshold).all()
        assert_array_equal(np.diff(found.indptr), (expected > 0).sum(axis=1))


@pytest.mark.parametrize("place", [0, 63, 1500])
def test_a_row_far_out_among_many_has_the_posteriors_it_has_alone(place):
    mixture = mixture_of(Gaussian(), Laplace())
    rows = np.random.default_rng(1).normal(size=(2000, 3)).astype(np.float32)
    rows[place] = 1e30  # its square overflows float32
    found = dense(mixture._parameters.sparse_posteriors(rows, 0), mixture)
    alone, _ = mixture._parameters.posteriors(rows[place : place + 1])
    assert_allclose(found[place], alone[:, 0], atol=1e-12)
    assert_allclose(found.sum(axis=1), 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", [{}, {"power": 1, "norm": None}, {"power": 0.3}])
@pytest.mark.parametrize("families", [(Gaussian(), Laplace()), (StudentT(), Logistic())])
def test_a_set_has_the_same_bits_alone_and_among_others(dtype, options, families):
    encoder = FisherEncoder.from_fitted(mixture_of(*families, K=5, D=7), **options)
    rng = np.random.default_rng(5)
    sets = [rng.normal(size=(n, 7)).astype(dtype) for n in (5, 1, 14, 130, 64, 65, 900, 27_000, 2)]
    among = encoder.transform(sets)
    for members, vector in zip(sets, among):
        assert_array_equal(encoder.transform([members])[0], vector)


@pytest.mark.parametrize("size", [1e-140, 1e-40, 1e-20, 1e20, 1e40, 1e140])
@pytest.mark.parametrize("n", [5, 200])
def test_units_do_not_matter_even_where_float32_cannot_hold_the_scales(size, n):
    rows = np.random.default_rng(6).normal(size=(n, 3))
    expected = FisherEncoder.from_fitted(mixture_of(Gaussian(), Laplace())).transform([rows])
    encoder = FisherEncoder.from_fitted(in_units(size))
    assert_allclose(encoder.transform([rows * size]), expected, atol=1e-6)
    if 1e-30 < size < 1e30:
        assert_allclose(encoder.transform([(rows * size).astype(np.float32)]), expected, atol=1e-3)


@pytest.mark.parametrize("size", [1e-300, 1e-40, 1e40, 1e155, 1e300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [5, 200])
def test_vectors_are_finite_whatever_the_scales(size, n, dtype):
    rows = np.random.default_rng(6).normal(size=(n, 3)).astype(dtype)
    assert np.isfinite(FisherEncoder.from_fitted(in_units(size)).transform([rows])).all()


@pytest.mark.parametrize("size", [1e200, 1e300])
def test_rows_that_cannot_be_squared_are_refused(size):
    rows = np.random.default_rng(0).normal(size=(20, 3))
    encoder = FisherEncoder(GaussianMixture(2, random_state=0)).fit([rows])
    with refuses("too_large"):
        encoder.transform([rows * size])


def in_units(size):
    mixture = mixture_of(Gaussian(), Laplace())
    mixture.locations_ = mixture.locations_ * size
    mixture.scales_ = mixture.scales_ * size
    return mixture


@pytest.mark.parametrize("kind", [OnRows(PCA(2)), FisherEncoder.from_fitted(mixture_of(Gaussian()))])
def test_sparse_sets_are_refused_by_name(kind):
    sets = [csr_matrix(ROWS[:5]), csr_matrix(ROWS[5:9])]
    with refuses("wrong_form"):
        kind.fit(sets)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_are_not_finite_are_refused_by_name(wrong, dtype):
    rows = ROWS[:100].astype(dtype)
    rows[50, 1] = wrong
    with refuses("not_finite", set=0, row=50):
        FisherEncoder.from_fitted(mixture_of(Gaussian())).transform([rows])


def test_families_are_asked_not_named():
    class Renamed(Laplace):
        name = "my-own"

    assert FisherVectors(mixture_of(Renamed())._parameters).linear_sign_form is not None
    assert FisherVectors(mixture_of(Cauchy())._parameters).linear_sign_form is None
    mixture = mixture_of(Gaussian(), Laplace())
    linear, signed = FisherVectors(mixture._parameters).linear_sign_form
    assert_array_equal(linear, mixture.choice_ == 0)
    assert_array_equal(signed, mixture.choice_ == 1)


def test_names_and_containers():
    encoder = FisherEncoder.from_fitted(mixture_of(Gaussian(), Laplace())).set_output(transform="pandas")
    frame = encoder.transform(SETS)
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns[[0, 1, 3, 12, 23]]) == [
        "location_0_0",
        "location_0_1",
        "location_1_0",
        "scale_0_0",
        "scale_3_2",
    ]


@pytest.mark.parametrize("is_fitted", [False, True])
def test_fit_fits_a_clone_of_the_mixture(is_fitted):
    given_ = GaussianMixture(2, random_state=0)
    if is_fitted:
        given_.fit(ROWS + 5)
    before = dict(vars(given_))
    encoder = FisherEncoder(given_)
    with pytest.raises(NotFittedError):
        encoder.transform(SETS)
    with pytest.raises(NotFittedError):
        encoder.get_feature_names_out()
    encoder.fit(SETS)
    assert vars(given_) == before
    assert_allclose(encoder.mixture_.weights_, GaussianMixture(2, random_state=0).fit(ROWS).weights_)
    with pytest.raises(NotFittedError):
        clone(encoder).transform(SETS)


def test_a_fitted_mixture_is_used_as_it_is():
    mixture = GaussianMixture(2, random_state=0).fit(ROWS)
    encoder = FisherEncoder.from_fitted(mixture, power=0.3).set_output(transform="pandas")
    expected = encoder.transform(SETS)
    assert_array_equal(encoder.mixture_.locations_, mixture.locations_)
    for other in (
        FisherEncoder(FrozenEstimator(mixture), power=0.3).fit(SETS[:1]),
        clone(make_pipeline(encoder))[0].fit(SETS[:1]),
        FisherEncoder.from_fitted(FrozenEstimator(mixture), power=0.3),
    ):
        assert other.power == 0.3
        assert_array_equal(other.set_output(transform="default").transform(SETS), expected)
    for unfitted in (
        FisherEncoder.from_fitted,
        lambda mixture: FisherEncoder(FrozenEstimator(mixture)).fit(SETS),
    ):
        with pytest.raises(NotFittedError):
            unfitted(GaussianMixture(2))


@pytest.mark.parametrize(
    "make", [FisherEncoder.from_fitted, lambda m: FisherEncoder(FrozenEstimator(m)).fit(SETS)]
)
def test_what_happens_to_the_given_mixture_does_not_change_a_fitted_encoder(make):
    mixture = GaussianMixture(2, random_state=0).fit(ROWS)
    encoder = make(mixture)
    expected, names = encoder.transform(SETS), encoder.get_feature_names_out()
    mixture.locations_ += 1  # in place
    assert_array_equal(encoder.transform(SETS), expected)
    mixture.set_params(n_components=3).fit(ROWS * 2)
    assert_array_equal(encoder.transform(SETS), expected)
    assert_array_equal(encoder.get_feature_names_out(), names)


@pytest.mark.parametrize("fitted", [False, True])
def test_a_diagonal_mixture_of_scikit_learn_will_do(fitted):
    theirs = TheirMixture(2, covariance_type="diag", random_state=0)
    encoder = FisherEncoder.from_fitted(theirs.fit(ROWS)) if fitted else FisherEncoder(theirs).fit(SETS)
    theirs.fit(ROWS)
    same = GaussianMixture.from_parameters(theirs.weights_, theirs.means_, np.sqrt(theirs.covariances_))
    assert_array_equal(encoder.transform(SETS), FisherEncoder.from_fitted(same).transform(SETS))
    with pytest.raises(FishermixError):
        FisherEncoder(TheirMixture(2, covariance_type="full")).fit(SETS)


@pytest.mark.slow
def test_cross_validation_fits_the_mixture_on_each_fold_unless_it_is_frozen(monkeypatch):
    rng = np.random.default_rng(0)
    sets = object_array([rng.normal(size=(20, 3)) + (i % 2 - 0.5) for i in range(24)])
    labels = np.arange(24) % 2
    mixture = GaussianMixture(2, random_state=0).fit(ROWS)
    before = mixture.locations_.copy()
    sizes = []
    fit = GaussianMixture.fit
    monkeypatch.setattr(GaussianMixture, "fit", lambda self, X, *rest: sizes.append(len(X)) or fit(self, X))

    def score(encoder, **grid):
        sizes.clear()
        pipeline = make_pipeline(encoder, LogisticRegression())
        found = GridSearchCV(pipeline, grid, cv=3, refit=False, error_score="raise").fit(sets, labels)
        assert found.best_score_ > 0.9
        return sorted(set(sizes)), len(sizes)

    assert score(FisherEncoder.from_fitted(mixture), fisherencoder__power=[0.5, 1]) == ([], 0)
    assert score(FisherEncoder(mixture), fisherencoder__power=[0.5, 1]) == ([320], 6)
    assert score(FisherEncoder(mixture), fisherencoder__mixture__n_components=[2, 3]) == ([320], 6)
    assert_array_equal(mixture.locations_, before)


def test_the_weight_of_a_set_is_that_of_its_rows():
    weights = [1, 2, 0, 3, 1, 1]
    copies = [members for members, weight in zip(SETS, weights) for _ in range(weight)]
    start = {"weights_init": [0.5, 0.5], "locations_init": ROWS[:2], "scales_init": np.ones((2, 3))}
    expected = FisherEncoder(GaussianMixture(2, **start)).fit(copies).mixture_
    for fit in ("fit", "fit_transform"):
        encoder = FisherEncoder(GaussianMixture(2, **start))
        getattr(encoder, fit)(SETS, sample_weight=weights)
        assert_allclose(encoder.mixture_.locations_, expected.locations_, rtol=1e-9)
    encoder.fit(ROWS, offsets=OFFSETS, sample_weight=weights)
    assert_allclose(encoder.mixture_.locations_, expected.locations_, rtol=1e-9)
    with refuses("wrong_shape"):
        encoder.fit(SETS, sample_weight=weights[1:])


@pytest.mark.parametrize("mixture", [None, "gaussian", LogisticRegression(), GaussianMixture])
def test_what_is_no_mixture_is_named(mixture):
    encoder = FisherEncoder(mixture)
    for use in (encoder.fit, encoder.transform, lambda _: FisherEncoder.from_fitted(mixture)):
        with refuses("wrong_parameter"):
            use(SETS)
    repr(encoder)


@pytest.mark.parametrize(
    ("options", "given_", "code"),
    [
        ({"power": 0}, {}, "wrong_parameter"),
        ({"norm": "l1"}, {}, "wrong_parameter"),
        ({"threshold": 2}, {}, "wrong_parameter"),
        ({"threshold": 1}, {}, "wrong_parameter"),
        ({"threshold": -0.1}, {}, "wrong_parameter"),
        ({}, {"offsets": [0, 5]}, "wrong_offsets"),
        ({}, {"offsets": [0, 50, 20, 85]}, "wrong_offsets"),
        ({}, {"offsets": [0, 2.5, 85]}, "wrong_offsets"),
        ({}, {"offsets": []}, "wrong_offsets"),
        ({}, {"X": np.ones((4, 2))}, "wrong_shape"),
        ({}, {"X": [np.ones((4, 3)), np.ones((4, 2))]}, "wrong_shape"),
        ({}, {"X": SETS, "offsets": OFFSETS}, "wrong_offsets"),
    ],
)
def test_mistakes_are_named(options, given_, code):
    with refuses(code):
        FisherEncoder.from_fitted(mixture_of(Gaussian()), **options).transform(**{"X": ROWS, **given_})
    with refuses("wrong_shape"):
        FisherEncoder.from_fitted(mixture_of(Gaussian())).fit(np.ones((4, 2)))


@pytest.mark.parametrize("options", [{"power": 1}, {"norm": None}, {"threshold": 0.3}], ids=str)
def test_a_changed_parameter_is_seen_by_the_next_call(options):
    mixture = mixture_of(Gaussian(), Laplace())
    encoder = FisherEncoder.from_fitted(mixture)
    encoder.transform(SETS)
    assert_array_equal(
        encoder.set_params(**options).transform(SETS),
        FisherEncoder.from_fitted(mixture, **options).transform(SETS),
    )


def test_a_second_fit_equals_the_first_of_a_new_encoder():
    used = FisherEncoder(GaussianMixture(3, random_state=0))
    used.fit(SETS[2:3]).transform(SETS)
    used.fit(SETS)
    new = FisherEncoder(GaussianMixture(3, random_state=0)).fit(SETS)
    assert_array_equal(used.transform(SETS), new.transform(SETS))
    used.set_params(mixture=GaussianMixture(2, random_state=0)).fit(SETS)
    new = FisherEncoder(GaussianMixture(2, random_state=0)).fit(SETS)
    assert_array_equal(used.transform(SETS), new.transform(SETS))
    assert vars(used).keys() == vars(new).keys()


@pytest.mark.slow
def test_the_documented_examples_run():
    page = Path(__file__).parents[4] / "docs" / "fisher.md"
    examples = re.findall(r"```python\n(.*?)```", page.read_text("utf8"), re.DOTALL)
    assert examples
    names: dict = {}
    for example in examples:
        exec(example, names)


@pytest.mark.slow
@parametrize_with_checks(
    [
        FisherEncoder(GaussianMixture(2, random_state=0)),
        FisherEncoder(GaussianMixture(2, random_state=0), norm="intra", weight_gradients=True),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-11), (np.float32, 1e-3)])
def test_the_default_threshold_is_as_exact_as_the_type(dtype, error):
    """1e-6 for float64 too would cost 4e-4 here, after the square root."""
    rng = np.random.default_rng(0)
    rows = (0.5 * rng.normal(size=(32, 32)))[rng.integers(32, size=20000)] + rng.laplace(size=(20000, 32))
    mixture = Mixture(32, random_state=0, max_iter=10, tol=0).fit(rows)
    sets = rows.reshape(-1, 20, 32)
    exact = FisherEncoder.from_fitted(mixture, threshold=0).transform(sets)
    assert_allclose(FisherEncoder.from_fitted(mixture).transform(sets.astype(dtype)), exact, atol=error)
    if dtype == np.float64:
        assert np.abs(FisherEncoder.from_fitted(mixture, threshold=1e-6).transform(sets) - exact).max() > 1e-5


def test_a_subclass_with_its_own_equality_encodes():
    class Comparable(FisherEncoder):
        def __eq__(self, other):
            return True

    rng = np.random.default_rng(0)
    mixture = GaussianMixture(2, random_state=0).fit(rng.normal(size=(100, 3)))
    sets = [rng.normal(size=(5, 3))]
    np.testing.assert_array_equal(
        Comparable.from_fitted(mixture).transform(sets), FisherEncoder.from_fitted(mixture).transform(sets)
    )


def test_one_array_that_looks_like_an_image_warns_and_offsets_say_otherwise():
    encoder = FisherEncoder.from_fitted(mixture_of(Gaussian()))
    rows = np.random.default_rng(0).normal(size=(100, 3))
    with pytest.warns(FishermixWarning, match=r"each of its 100 rows .* pass \[X\]") as caught:
        vectors = encoder.transform(rows)
    assert caught[0].filename == __file__
    with pytest.warns(FishermixWarning, match="100 rows"):
        encoder.transform(pd.DataFrame(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_array_equal(encoder.transform(rows, range(101)), vectors)
        assert encoder.transform([rows]).shape == (1, 24)
        encoder.transform(rows[:99])


def test_names_of_the_input_must_fit_the_rows():
    encoder = FisherEncoder.from_fitted(mixture_of(Gaussian()))
    names = encoder.get_feature_names_out(["a", "b", "c"])
    assert_array_equal(names, encoder.get_feature_names_out())
    with pytest.raises(ValueError, match="input_features should have length 3, got 2"):
        encoder.get_feature_names_out(["a", "b"])


@pytest.mark.parametrize("sets", [[csr_matrix(np.eye(3))], np.array([csr_matrix(np.eye(3)), None])[:1]])
def test_sparse_sets_get_an_error_that_says_what_to_do(sets):
    encoder = FisherEncoder.from_fitted(mixture_of(Gaussian()))
    for use in (encoder.transform, encoder.fit, OnRows(PCA(2)).fit):
        with refuses("wrong_form"):
            use(sets)
