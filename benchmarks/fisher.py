"""Fisher vectors compared with scikit-image: 30,000 short sentences, and one image of 10,000 descriptors."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from skimage import color, data
from skimage.feature import daisy, fisher_vector
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture as SklearnMixture

from benchmarks.timing import Row, best_of, peak_memory
from fishermix import FisherEncoder, GaussianMixture, HybridMixture, SentenceEncoder, WordVectors
from fishermix.text.whitening import Whitening

WORD2VEC = Path(__file__).parent.parent / ".cache" / "word2vec"
SENTENCES, VOCABULARY, COMPONENTS = 30_000, 8_000, 30
PEER_SHARE = 20  # the peer encodes one sentence in 20, and its time is multiplied by 20


def run() -> list[Row]:
    return [*sentences(), *image()]


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
    peer_seconds = PEER_SHARE * best_of(lambda: [fisher_vector(x, peer, improved=True) for x in few], 2)
    named = f"scikit-image, Gaussian, scaled from {len(few):,}:"

    encoder = FisherEncoder(hybrid)
    size = f"D=300 K={COMPONENTS} hybrid"
    ours = best_of(lambda: encoder.transform(rows, offsets), 4)
    _, grown = peak_memory(lambda: encoder.transform(rows, offsets))
    by_set = Row(
        f"{SENTENCES:,} sets of about 10 rows, {size}",
        ours,
        named,
        peer_seconds,
        "0.10, goal 0.08",
        _gigabytes(grown),
    )
    ours = best_of(lambda: SentenceEncoder(vectors, whitening, [hybrid]).transform(texts), 4)
    _, grown = peak_memory(lambda: SentenceEncoder(vectors, whitening, [hybrid]).transform(texts))
    title = f"the same as text, {VOCABULARY:,} words, with tokenization and word scores"
    return [by_set, Row(title, ours, named, peer_seconds, "0.05", _gigabytes(grown))]


def image() -> list[Row]:
    """Dense DAISY descriptors of real pictures, reduced to 64 dimensions by PCA."""
    pictures = [color.rgb2gray(picture) for picture in (data.astronaut(), data.coffee(), data.chelsea())]
    found = [
        daisy(picture, step=4, radius=15, rings=2, histograms=6).reshape(-1, 104) for picture in pictures
    ]
    rows = PCA(64, whiten=True, random_state=0).fit_transform(np.concatenate(found))
    mixture = GaussianMixture(256, max_iter=10, min_scale=0.05, random_state=0).fit(rows.astype(np.float32))
    rows = np.random.default_rng(0).permutation(rows)[:10_000]
    single = rows.astype(np.float32)
    encoder = FisherEncoder(mixture)
    ours = best_of(lambda: encoder.transform([single]), 10)
    table = []
    for peer_rows, kind, wanted in (
        (rows, "float64 as its pipeline gives", "0.2, goal 0.12"),
        (single, "float32 too", ""),
    ):
        peer = as_sklearn(mixture, peer_rows.dtype)
        seconds = best_of(lambda x=peer_rows, peer=peer: fisher_vector(x, peer, improved=True), 5)
        table.append(
            Row("one image, 10,000 x 64, K=256 Gaussian", ours, f"scikit-image, {kind}:", seconds, wanted)
        )
    return table


def as_sklearn(mixture: GaussianMixture, kind=np.float32) -> SklearnMixture:
    """The same Gaussians for scikit-image, which takes scikit-learn's class."""
    peer = SklearnMixture(len(mixture.weights_), covariance_type="diag")
    peer.weights_, peer.means_ = mixture.weights_.astype(kind), mixture.locations_.astype(kind)
    peer.covariances_ = (mixture.scales_**2).astype(kind)
    peer.precisions_cholesky_ = (1 / mixture.scales_).astype(kind)
    return peer


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
