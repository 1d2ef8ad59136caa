"""Each stage computes the numbers that are recorded for its version.

If a test fails because you changed what a stage computes: increase its version in
`fishermix_lab.stages.VERSIONS`, and record the new version and numbers here.
"""

import numpy as np
import pytest
from fishermix import FisherEncoder, HybridMixture, RegularizedCCA
from fishermix.joint.hubness import HubnessCorrection
from fishermix.joint.ranks import figures, task_ranks
from fishermix.text.whitening import Whitening
from fishermix_lab.stages import VERSIONS
from fishermix_photos.model.image_encoder import ImageEncoder
from fishermix_photos.model.transformer import DEFAULT_TRANSFORMER, SentenceTransformer
from PIL import Image

RNG = np.random.default_rng(0)
ROWS = (RNG.laplace(size=(2000, 6)) @ RNG.standard_normal((6, 6))).astype(np.float32)
WHITE = Whitening("ica", random_state=0).fit_transform(ROWS)
OTHERS = ROWS[:, :4] + RNG.standard_normal((2000, 4))


def whiten():
    return [np.abs(WHITE).mean(), np.abs(WHITE[0]).max()]


def fit_mixture():
    mixture = HybridMixture(5, random_state=0).fit(WHITE)
    return [mixture.n_iter_, mixture.score(WHITE), mixture.choice_.sum()]


def encode_words():
    mixture = HybridMixture(3, max_iter=5, tol=0, random_state=0).fit(WHITE)
    vector = FisherEncoder.from_fitted(mixture).transform([WHITE[:10]])[0]
    return [vector.sum(), np.abs(vector).max()]


def fit_space():
    cca = RegularizedCCA(3, reg_x=0.1, reg_y=0.01, correlation_power=1.0).fit(ROWS, OTHERS)
    hubness = HubnessCorrection.from_embeddings(*cca.transform(ROWS[:50], OTHERS[:50]), 5)
    return [*cca.ridged_correlations_, hubness.of_left(cca.transform(ROWS[:50])).sum()]


def rank():
    found = figures(task_ranks(ROWS[:200, :4], OTHERS[:200], np.arange(200) // 2))
    return [found[task][measure] for task in found for measure in ("r@10", "median", "mean")]


def encode_image():
    pixels = np.kron(np.random.default_rng(0).integers(256, size=(8, 9, 3)), np.ones((40, 40, 1)))
    vector = ImageEncoder().transform([Image.fromarray(pixels.astype(np.uint8))])[0]
    return [vector.mean(), vector.max()]


def encode_sentence():
    return SentenceTransformer.find(DEFAULT_TRANSFORMER).encode(["two dogs on a beach"])[0][:4]


RECORDED = {
    "whitening": (1, whiten, [0.705066, 2.35552]),
    "mixture": (2, fit_mixture, [9, -8.05518, 27]),
    "sentence vectors": (1, encode_words, [-0.0983304, 0.316501]),
    "joint space": (1, fit_space, [0.920123, 0.874213, 0.859719, 11.4996]),
    "ranks": (1, rank, [6.5, 104, 99.615, 9, 48, 61.66, 3.5, 97, 99.615]),
    "image features": (1, encode_image, [0.0815822, 3.88469]),
    "sentence transformer": (1, encode_sentence, [-0.00919819, -0.0143802, 0.0549048, 0.00229054]),
}
TOLERANCE = {"sentence transformer": 5e-3, "image features": 1e-3}  # 8-bit products differ by processor


@pytest.mark.parametrize("stage", RECORDED)
def test_a_stage_computes_the_numbers_of_its_version(stage):
    version, compute, numbers = RECORDED[stage]
    assert version == VERSIONS[stage]
    tolerance = TOLERANCE.get(stage, 1e-4)
    np.testing.assert_allclose(compute(), numbers, rtol=tolerance, atol=tolerance)
