"""What a user of the library writes; tests/test_user_types.py checks it with `mypy --strict`."""

from typing import assert_type

import numpy as np
from fishermix import (
    FisherEncoder,
    GaussianMixture,
    HybridMixture,
    Mixture,
    OnRows,
    RegularizedCCA,
    SentenceEncoder,
    WordVectors,
)
from fishermix.mixture import Family, StudentT, check_family
from fishermix.text.whitening import Whitening

X = np.random.default_rng(0).normal(size=(200, 3))
mixture = HybridMixture(3, random_state=0).fit(X)
assert_type(mixture, HybridMixture)
assert_type(mixture.weights_, np.ndarray)
assert_type(mixture.choice_, np.ndarray)
assert_type(mixture.n_iter_, int)
assert_type(mixture.converged_, bool)
assert_type(mixture.lower_bound_, float)
assert_type(mixture.predict(X), np.ndarray)
assert_type(mixture.bic(X), float)
assert_type(mixture.sample(5)[0], np.ndarray)
assert_type(GaussianMixture(2).fit(X, sample_weight=np.ones(200)).means_, np.ndarray)
assert_type(Mixture(2, families=["gaussian", StudentT(4.0)]).partial_fit(X).scales_, np.ndarray)
assert_type(GaussianMixture.from_parameters([1.0], [[0.0]], [[1.0]]), GaussianMixture)

encoder = FisherEncoder.from_fitted(mixture, power=0.5)
assert_type(encoder, FisherEncoder)
assert_type(encoder.transform([X[:5], X[5:9]]), np.ndarray)
assert_type(encoder.fit([X]).mixture_, Mixture)

cca = RegularizedCCA(2, reg_x=0.1).fit(X, X)
assert_type(cca.correlations_, np.ndarray)
assert_type(cca.transform(X), np.ndarray)
assert_type(cca.transform(X, X), tuple[np.ndarray, np.ndarray])
assert_type(cca.score(X, X), float)

vectors = WordVectors(["dog", "cat"], np.eye(2))
assert_type(SentenceEncoder(vectors).transform(["a dog"]), np.ndarray)
assert_type(Whitening("pca").fit(X).matrix_, np.ndarray)
assert_type(Whitening("pca").fit(X).transform(X), np.ndarray)


def use(family: Family, rows: OnRows) -> None:
    check_family(family)
    rows.fit([X]).transform([X])
