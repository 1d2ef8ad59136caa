"""Fisher vectors compared with scikit-image: short sentences, tiny sets, one image of 10,000 descriptors, the
same with components that overlap, 200 images, one small set per call, and the first one in a new environment.

VLFeat joins where cyvlfeat is installed.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from fishermix import FisherEncoder, GaussianMixture, HybridMixture, SentenceEncoder, WordVectors
from fishermix.text.whitening import Whitening
from skimage import color, data
from skimage.feature import daisy, fisher_vector
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture as SklearnMixture

from benchmarks.timing import (
    FULL,
    Row,
    compare,
    measure_first,
    peak_memory,
    roofline,
    show_bytes,
    thread_counts,
    use_threads,
)

WORD2VEC = Path(__file__).parent.parent / ".cache" / "word2vec"
SENTENCES, VOCABULARY, COMPONENTS = 30_000 if FULL else 6_000, 8_000, 30
TINY = 100_000 if FULL else 20_000
PEER_SHARE = 20  # the peer encodes one sentence in 20, and its time is multiplied by 20


def run() -> list[Row]:
    return [*sentences(), *image(), *overlapping(), tiny_sets(), first_vector()]


def sentences() -> list[Row]:
    """Sentences of five to fifteen of the 8,000 most frequent real words, drawn by Zipf's law."""
    rng = np.random.default_rng(0)
    vectors = WordVectors.load(WORD2VEC)[:]
    whitening = Whitening("pca").fit(vectors.vectors)
    white = whitening.transform(vectors.vectors)
    hybrid = HybridMixture(COMPONENTS, max_iter=25, random_state=0).fit(white)
    peer = as_sklearn(GaussianMixture(COMPONENTS, max_iter=25, random_state=0).fit(white))

    sizes = rng.integers(5, 16, SENTENCES)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    frequency = 1 / np.arange(1, VOCABULARY + 1)
    words = rng.choice(VOCABULARY, offsets[-1], p=frequency / frequency.sum())
    rows = white[words]
    texts = [[vectors.words[word] for word in words[a:b]] for a, b in pairwise(offsets)]
    texts = [" ".join(text) for text in texts]

    few = [rows[a:b] for a, b in zip(offsets[:-1:PEER_SHARE], offsets[1::PEER_SHARE])]
    named = f"scikit-image, Gaussian, scaled from {len(few):,}:"
    encoder, text_encoder = (
        FisherEncoder.from_fitted(hybrid),
        SentenceEncoder.from_fitted(vectors, whitening, [hybrid]),
    )
    runs = {
        "sets": lambda: encoder.transform(rows, offsets),
        "text": lambda: SentenceEncoder.from_fitted(vectors, whitening, [hybrid]).transform(texts),
        "peer": lambda: [fisher_vector(x, peer, improved=True) for x in few],
    }
    memory = {name: show_bytes(peak_memory(runs[name])[1]) for name in ("sets", "text")}
    written = SENTENCES * text_encoder.n_features * 4
    works = {
        "sets": (f"{SENTENCES:,} sets of about 10 rows, D=300 K={COMPONENTS} hybrid", "0.027"),
        "text": (f"the same as text, {VOCABULARY:,} words, with tokenization and word scores", "0.034"),
    }
    table = []
    for threads in thread_counts():
        floor = roofline(0, written, np.float32, threads)
        with use_threads(threads):
            found = compare(runs, 3)
        for name, (work, wanted) in works.items():
            theirs = found["peer"] * PEER_SHARE
            table.append(Row(work, found[name], named, theirs, wanted, memory[name], threads, floor))
    return table


def image() -> list[Row]:
    """Dense DAISY descriptors of real pictures, reduced to 64 dimensions by PCA."""
    pictures = [color.rgb2gray(picture) for picture in (data.astronaut(), data.coffee(), data.chelsea())]
    found = [
        daisy(picture, step=4, radius=15, rings=2, histograms=6).reshape(-1, 104) for picture in pictures
    ]
    rows = PCA(64, whiten=True, random_state=0).fit_transform(np.concatenate(found))
    table = []
    for components, iterations, size, wanted in (
        (256, 10, 10_000, ("0.15", "0.3")),
        (256, 2, 10_000, ("0.25", "0.5")),
        (64, 10, 10_000, ("0.4", "0.4")),
        (64, 10, 20, ("1.5", "1.5")),
    ):
        options = {"max_iter": iterations, "min_scale": 0.05, "random_state": 0}
        mixture = GaussianMixture(components, **options).fit(rows.astype(np.float32))
        some = np.random.default_rng(0).permutation(rows)[:size]
        case = f"one set, {size:,} x 64, K={components} Gaussian, mixture of {iterations} iterations"
        table += one_set(case, mixture, some, wanted)
    return table + many_images(mixture, rows)


def overlapping() -> list[Row]:
    """Each row belongs to most components, so nearly all posteriors count."""
    rows = np.random.default_rng(0).standard_normal((10_000, 64))
    table = []
    for components in (32, 64):
        means = 0.1 * rows[:components]
        weights, scales = np.full(components, 1 / components), np.ones_like(means)
        mixture = GaussianMixture.from_parameters(weights, means, scales)
        case = f"one set, 10,000 x 64, K={components} Gaussian, components that overlap"
        table += one_set(case, mixture, rows, ("", ""))
    return table


def many_images(mixture: GaussianMixture, rows: np.ndarray) -> list[Row]:
    """200 images of 1,000 rows each; the peer takes one after the other."""
    draws = np.random.default_rng(0).integers(len(rows), size=(200, 1000))
    single = rows.astype(np.float32)[draws]
    encoder, peer = FisherEncoder.from_fitted(mixture), as_sklearn(mixture)
    runs = {
        "ours": lambda: encoder.transform(single),
        "peer": lambda: [fisher_vector(image, peer, improved=True) for image in single],
    }
    _, memory = peak_memory(runs["ours"])
    work, table = "200 images, 1,000 x 64, K=64 Gaussian", []
    for threads in thread_counts():
        floor = roofline(4.0 * single.size * 64, single.nbytes, np.float32, threads)
        with use_threads(threads):
            found = compare(runs, 3)
        given = "0.4", show_bytes(memory), threads, floor
        table.append(Row(work, found["ours"], "scikit-image, float32:", found["peer"], *given))
    return table


def tiny_sets() -> Row:
    """Three rows per set: what a call costs the peer."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3 * TINY, 16), dtype=np.float32)
    mixture = GaussianMixture(8, max_iter=5, random_state=0).fit(rows[:10_000])
    encoder, peer, offsets = (
        FisherEncoder.from_fitted(mixture),
        as_sklearn(mixture),
        np.arange(0, len(rows) + 1, 3),
    )
    few = rows.reshape(TINY, 3, 16)[::PEER_SHARE]
    runs = {
        "ours": lambda: encoder.transform(rows, offsets),
        "peer": lambda: [fisher_vector(one, peer, improved=True) for one in few],
    }
    _, memory = peak_memory(runs["ours"])
    with use_threads(1):
        found = compare(runs, 3)
    named = f"scikit-image, scaled from {len(few):,}:"
    floor = roofline(0, TINY * 2 * 8 * 16 * 4, np.float32, 1)
    work = f"{TINY:,} sets of 3 rows, D=16 K=8 Gaussian"
    return Row(work, found["ours"], named, found["peer"] * PEER_SHARE, "0.034", show_bytes(memory), 1, floor)


FIRST = """
import time
import numpy as np
from fishermix import FisherEncoder, GaussianMixture
rows = np.random.default_rng(0).standard_normal((1000, 64)).astype(np.float32)
mixture = GaussianMixture.from_parameters(np.full(16, 1 / 16), rows[:16], np.ones((16, 64)))
wall, cpu = time.perf_counter(), time.process_time()
FisherEncoder.from_fitted(mixture).transform([rows])
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def first_vector() -> Row:
    """The first Fisher vector with nothing compiled, and with what that run left on disk."""
    first, second = measure_first(FIRST)
    return Row("first Fisher vector in a new environment", first, "ours, compiled before:", second, "1 s")


def one_set(case: str, mixture: GaussianMixture, rows: np.ndarray, wanted: tuple[str, str]) -> list[Row]:
    """The peer in float64, as its pipeline gives the rows, and in float32 as we do."""
    single = rows.astype(np.float32)
    encoder, table = FisherEncoder.from_fitted(mixture), []
    peers = {kind: as_sklearn(mixture, kind) for kind in ("float64", "float32")}
    runs = {
        "ours": lambda: encoder.transform([single]),
        "float64": lambda: fisher_vector(rows, peers["float64"], improved=True),
        "float32": lambda: fisher_vector(single, peers["float32"], improved=True),
    }
    # A matrix product each for the linear and the square terms of the densities.
    operations = 4.0 * rows.size * len(mixture.weights_)
    memory = f"{show_bytes(peak_memory(runs['ours'])[1])}, peer {show_bytes(peak_memory(runs['float32'])[1])}"
    for threads in thread_counts():
        floor = roofline(operations, single.nbytes, np.float32, threads)
        with use_threads(threads):
            found = compare(runs, 10 if len(rows) > 1000 else 200)
        for kind, ratio in zip(("float64", "float32"), wanted):
            peer = f"scikit-image, {kind}:"
            table.append(Row(case, found["ours"], peer, found[kind], ratio, memory, threads, floor))
    return table


def as_sklearn(mixture: GaussianMixture, kind=np.float32) -> SklearnMixture:
    """The same Gaussians for scikit-image, which takes scikit-learn's class."""
    peer = SklearnMixture(len(mixture.weights_), covariance_type="diag")
    peer.weights_, peer.means_ = mixture.weights_.astype(kind), mixture.locations_.astype(kind)
    peer.covariances_ = (mixture.scales_**2).astype(kind)
    peer.precisions_cholesky_ = (1 / mixture.scales_).astype(kind)
    return peer
