"""Families with a free shape: it is fitted for each component and dimension, and counts everywhere."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from fishermix import FisherEncoder, GaussianMixture, Mixture, SentenceEncoder, WordVectors
from fishermix.errors import FishermixError
from fishermix.fisher.reference import fisher_vector
from fishermix.mixture import Family, Shape, StudentT, check_family
from fishermix.mixture.families import DensityForm
from fishermix.mixture.saved import pack_mixture, unpack_parameters
from oracles import interrupt_em
from refuses import refuses
from scipy import stats
from scipy.special import gammaln, log_ndtr

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
FREE = [StudentT(df=None)]


@dataclass(frozen=True)
class Power(Family):
    """f(z) = beta / (2 Gamma(1 / beta)) exp(-|z|^beta): the generalized normal."""

    beta: float | None = None
    name: ClassVar[str] = "power"
    shape_parameter: ClassVar[Shape] = Shape("beta", np.geomspace(1.2, 12, 101))

    def log_density(self, z):
        return np.log(self.beta / 2) - gammaln(1 / self.beta) - np.abs(z) ** self.beta

    def location_score(self, z):
        return self.beta * np.sign(z) * np.abs(z) ** (self.beta - 1)

    def sample(self, rng, size):
        return rng.choice([-1, 1], size) * rng.gamma(1 / np.asarray(self.beta), size=size) ** (1 / self.beta)


@dataclass(frozen=True)
class SkewNormal(Family):
    skew: float | None = None
    name: ClassVar[str] = "skew-normal"
    shape_parameter: ClassVar[Shape] = Shape("skew", np.linspace(-8, 8, 161))

    def log_density(self, z):
        return np.log(2) + stats.norm.logpdf(z) + log_ndtr(self.skew * z)

    def location_score(self, z):
        rest = np.exp(stats.norm.logpdf(self.skew * z) - log_ndtr(self.skew * z))
        return z - self.skew * rest

    def sample(self, rng, size):
        return stats.skewnorm.rvs(self.skew, size=size, random_state=rng)


def heavy(df, n=3000, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.standard_t(each, n) for each in df])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_degrees_of_freedom_are_those_of_maximum_likelihood(dtype):
    X = 2 * heavy((0.7, 2, 5, 20)).astype(dtype) + 1
    mixture = Mixture(1, families=FREE, tol=1e-6, max_iter=200, random_state=0).fit(X)
    theirs = [stats.t.fit(x) for x in X.T.astype(float)]
    best = sum(stats.t.logpdf(x, *fit).mean() for x, fit in zip(X.T.astype(float), theirs))
    assert mixture.score(X) > best - 3e-4
    np.testing.assert_allclose(mixture.shapes_[0], [fit[0] for fit in theirs], rtol=0.1)
    assert (np.diff(mixture.lower_bounds_) > -1e-12).all()


@pytest.mark.parametrize(
    ("family", "of"), [(Power, stats.gennorm), (SkewNormal, stats.skewnorm)], ids=["power", "skew-normal"]
)
def test_a_custom_family_reaches_the_maximum_of_scipy(family, of):
    rng = np.random.default_rng(1)
    X = np.column_stack([of.rvs(shape, size=2000, random_state=rng) for shape in (1.5, 3.0, 6.0)])
    mixture = Mixture(1, families=[family()], tol=1e-7, max_iter=400, random_state=0).fit(X)
    best = sum(of.logpdf(x, *of.fit(x)).mean() for x in X.T)
    assert mixture.score(X) > best - 1e-3
    assert (np.diff(mixture.lower_bounds_) > -1e-12).all()


@pytest.mark.slow
def test_each_component_has_its_own():
    X = np.vstack([heavy((1.5, 1.5)), 40 + heavy((100, 100), seed=1)])
    mixture = Mixture(2, families=FREE, tol=1e-5, n_init=3, random_state=0).fit(X)
    first, last = np.argsort(mixture.locations_[:, 0])
    assert (mixture.shapes_[first] < 2).all()
    assert (mixture.shapes_[last] > 15).all()


def test_a_cell_chooses_between_it_and_others():
    X = np.column_stack([heavy((2,)), np.random.default_rng(3).laplace(size=3000)])
    families = ["laplace", *FREE]
    mixture = Mixture(1, families=families, tol=1e-6, max_iter=200, random_state=0).fit(X)
    assert mixture.choice_.tolist() == [[1, 0]]
    np.testing.assert_array_equal(np.isnan(mixture.shapes_), [[False, True]])
    assert mixture._parameters.n_free == 4 + 1
    assert np.isnan(Mixture(1).fit(X).shapes_).all()
    assert not hasattr(GaussianMixture(1).fit(X), "shapes_")


def test_fisher_vectors_have_the_expected_covariance():
    """Bare gradients of single rows have mean 0 and variance 1: so the informations are right."""
    shapes = [[1.5, 3.0, 8.0]]
    for family in (*FREE, Power()):
        mixture = Mixture.from_parameters(
            [1.0], np.zeros((1, 3)), np.ones((1, 3)), families=[family], shapes=shapes
        )
        rows, _ = mixture.sample(20_000)
        vectors = FisherEncoder.from_fitted(mixture, power=1, norm=None).transform(
            rows, offsets=range(len(rows) + 1)
        )
        np.testing.assert_allclose(vectors.mean(axis=0), 0, atol=0.05)
        np.testing.assert_allclose(vectors.std(axis=0), 1, rtol=0.1)


def test_every_way_to_a_fisher_vector_gives_the_same():
    X = heavy((2, 3, 30))
    mixture = Mixture(2, families=["gaussian", *FREE, Power()], random_state=0).fit(X)
    assert len(np.unique(mixture.choice_)) > 1
    sets = [X[:30], X[30:200]]
    vectors = FisherEncoder.from_fitted(mixture).transform(sets)
    np.testing.assert_allclose(vectors, [fisher_vector(rows, mixture) for rows in sets], atol=1e-8)
    words = WordVectors([f"w{i}" for i in range(30)], X[:30])
    of_words = SentenceEncoder.from_fitted(words, None, [mixture]).transform([[f"w{i}" for i in range(30)]])
    np.testing.assert_allclose(of_words, vectors[:1], atol=1e-5)


def test_weight_two_is_the_row_twice():
    X, options = heavy((2, 9), n=400), {"families": FREE, "random_state": 0, "tol": 1e-5}
    weight = np.random.default_rng(0).integers(1, 3, len(X))
    once = Mixture(2, **options).fit(X, sample_weight=weight)
    twice = Mixture(2, **options).fit(np.repeat(X, weight, axis=0))
    np.testing.assert_array_equal(once.shapes_, twice.shapes_)


def test_saved_resumed_and_warm_fits_keep_the_shapes(tmp_path, monkeypatch):
    X = heavy((1, 4, 50))
    mixture = Mixture(2, families=["gaussian", *FREE], tol=1e-6, max_iter=40, random_state=0)
    whole = mixture.fit(X)
    whole.save(tmp_path / "mixture")
    loaded = Mixture.load(tmp_path / "mixture")
    np.testing.assert_array_equal(loaded.shapes_, whole.shapes_)
    np.testing.assert_array_equal(loaded.score_samples(X), whole.score_samples(X))
    np.testing.assert_array_equal(
        loaded.partial_fit(X[:500]).shapes_, whole.partial_fit(X[:500]).shapes_
    )  # the strides are saved too

    resumed = Mixture(**{**mixture.get_params(), "checkpoint": tmp_path / "checkpoint"})

    def interrupt(state):
        if state.iteration == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        interrupt_em(patch, interrupt)
        with pytest.raises(KeyboardInterrupt):
            resumed.fit(X)
    again = Mixture(**mixture.get_params()).fit(X)
    np.testing.assert_array_equal(resumed.fit(X).shapes_, again.shapes_)

    again.set_params(warm_start=True, max_iter=2)
    before = again.shapes_.copy()
    again.fit(X)
    np.testing.assert_allclose(again.shapes_, before, rtol=0.3)


def test_wrong_shapes_are_refused():
    arrays = [1.0], [[0.0, 0.0]], [[1.0, 1.0]]
    for shapes in (None, [[1.0, np.nan]], [[1.0, -1.0]], [1.0, 1.0]):
        with refuses("wrong_parameter"):
            Mixture.from_parameters(*arrays, families=FREE, shapes=shapes)
    for df in (-1, 0, float("nan"), "estimate", True):
        with refuses("wrong_parameter"):
            StudentT(df=df)


def test_check_family_checks_every_shape():
    check_family(Power())
    check_family(SkewNormal())
    check_family(StudentT(df=None))

    class Wrong(Power):
        def log_density(self, z):
            return super().log_density(z) + (0.1 if np.all(self.beta == 12) else 0)

    class OneAtATime(Power):
        def log_density(self, z):
            return -np.abs(z) if self.beta == 1 else super().log_density(z)

    class Descending(Power):
        shape_parameter: ClassVar[Shape] = Shape("beta", np.array([3.0, 2.0]))

    for family in (Wrong, OneAtATime, Descending):
        with pytest.raises(FishermixError) as caught:
            check_family(family())
        assert caught.value.code == "wrong_family"


def test_a_family_with_a_form_has_no_free_shape():
    class Formed(Power):
        density_form: ClassVar[DensityForm] = DensityForm(0.0, 1.0, 0.0)

    with refuses("wrong_family"):
        check_family(Formed())


def test_files_threads_and_memory_give_the_same_bits(tmp_path):
    X = heavy((1, 4, 50), n=6000)
    np.save(tmp_path / "rows.npy", X)
    options = {"families": ["gaussian", *FREE], "random_state": 0, "max_iter": 8, "tol": 0}
    shapes = Mixture(2, **options).fit(X).shapes_
    np.testing.assert_array_equal(Mixture(2, n_jobs=2, **options).fit(X).shapes_, shapes)
    np.testing.assert_array_equal(
        Mixture(2, working_memory=0.1, **options).fit(str(tmp_path / "rows.npy")).shapes_, shapes
    )


def test_the_arrays_of_a_model_hold_the_shapes():
    X = heavy((1, 4, 50))
    mixture = Mixture(2, families=["laplace", *FREE], random_state=0).fit(X)
    _, tensors = pack_mixture(mixture)
    parameters = unpack_parameters(mixture.families_, tensors, "here")
    np.testing.assert_array_equal(parameters.posteriors(X)[0].T, mixture.predict_proba(X))
    for wrong in ({"shape": -tensors["shape"]}, {"shape": tensors["shape"][:1]}):
        with pytest.raises(FishermixError):
            unpack_parameters(mixture.families_, tensors | wrong, "here")


def test_an_attribute_shape_of_a_custom_family_means_nothing():
    class Stretched(StudentT):
        name = "stretched"

        def __init__(self, shape=3.0):
            super().__init__(shape)
            object.__setattr__(self, "shape", shape)

    mixture = Mixture(1, families=[Stretched()], random_state=0).fit(heavy((3,)))
    assert np.isnan(mixture.shapes_).all()
