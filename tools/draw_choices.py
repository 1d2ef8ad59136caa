"""Measures and draws the figures of docs/choosing.md: python tools/draw_choices.py NAME …

Each name is a question of the page. The script prints a table and writes docs/figures/choosing-NAME.png.
Nothing is downloaded: the pictures come with scikit-image, the tables with scikit-learn, the sentences are
SciPy's docstrings, and the network and the word vectors are those of the model in fishermix-photos.
"""

import argparse
import importlib
import inspect
import re
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import onnx
import onnxruntime
from fishermix import (
    BagOfWordsEncoder,
    FisherEncoder,
    GaussianMixture,
    HybridMixture,
    LaplacianMixture,
    Mixture,
    OnRows,
    RegularizedCCA,
    SentenceEncoder,
    VLADEncoder,
)
from fishermix.mixture import StudentT
from fishermix_photos import ImageTextModel
from fishermix_photos.model.network import Network
from PIL import Image
from scipy.optimize import linear_sum_assignment
from skimage import color, data
from skimage.feature import daisy
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture as PeerMixture
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

matplotlib.use("agg")
import matplotlib.pyplot as plt

MIXTURES = {"GMM": GaussianMixture, "LMM": LaplacianMixture, "HGLMM": HybridMixture}
STARTS = ["random", "k-means++", "kmeans"]
COLORS = {"GMM": "#4c72b0", "LMM": "#8c8c8c", "HGLMM": "#c0392b"}

# The data


PICTURES = [
    *("astronaut", "brick", "camera", "cell", "chelsea", "clock", "coffee", "coins", "grass", "gravel"),
    *("hubble_deep_field", "immunohistochemistry", "moon", "page", "retina", "rocket", "text"),
]
TILE = 48


@cache
def load_tiles():
    """DAISY descriptors of the tiles of 17 pictures: sets (36, 104), the picture, and its left or right half.

    The halves are the folds: no pixel is in both.
    """
    sets, labels, halves = [], [], []
    for label, name in enumerate(PICTURES):
        picture = getattr(data, name)()
        gray = color.rgb2gray(picture) if picture.ndim == 3 else picture / 255
        for half, part in enumerate(np.array_split(gray, 2, axis=1)):
            corners = np.array(
                [
                    (top, left)
                    for top in range(0, part.shape[0] - TILE + 1, TILE // 2)
                    for left in range(0, part.shape[1] - TILE + 1, TILE // 2)
                ]
            )
            kept = np.linspace(0, len(corners) - 1, min(30, len(corners))).astype(int)
            for top, left in corners[kept]:
                found = daisy(
                    part[top : top + TILE, left : left + TILE], step=6, radius=8, rings=2, histograms=6
                )
                sets.append(found.reshape(-1, found.shape[2]).astype(np.float32))
                labels.append(label)
                halves.append(half)
    return sets, np.array(labels), np.array(halves)


@cache
def load_patches():
    """The 3 x 3 patches of scikit-learn's digits with their positions: sets (36, 11), and the digits."""
    digits = load_digits()
    windows = np.lib.stride_tricks.sliding_window_view(digits.images / 16, (3, 3), axis=(1, 2))
    positions = np.stack(np.divmod(np.arange(36), 6), axis=1) / 5
    positions = np.broadcast_to(positions, (len(windows), 36, 2))
    sets = np.concatenate([windows.reshape(-1, 36, 9), positions], axis=2).astype(np.float32)
    return list(sets), digits.target, np.arange(len(sets)) % 2


TOPICS = ["interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "stats"]


@cache
def load_sentences():
    """Sentences of SciPy's docstrings, the subpackage of each, and the function, by which folds are made."""
    sentences, topics, functions = [], [], []
    seen = set()
    for topic in TOPICS:
        module = importlib.import_module(f"scipy.{topic}")
        for name in module.__all__:
            document = inspect.getdoc(getattr(module, name)) or ""
            text = re.split(r"\n[A-Z][A-Za-z ]+\n-{3,}\n", document)[0]
            text = re.sub(r"\(?https?:\S+|:\w+:|\.\. \w+::.*|[`*\\]|\[\d+\]_", "", text)
            for sentence in re.split(r"(?<=[.!?:])\s+|\n\s*\n", text):
                sentence = " ".join(re.sub(rf"\b{name}\b", "this", sentence).split())
                if len(re.findall(r"[A-Za-z]+", sentence)) >= 5 and sentence not in seen:
                    seen.add(sentence)
                    sentences.append(sentence)
                    topics.append(topic)
                    functions.append(f"{topic}.{name}")
    return sentences, np.array(topics), np.array(functions)


@cache
def load_words():
    """The word vectors of the model in fishermix-photos, and their ICA: 20,000 x 300."""
    encoder = ImageTextModel.load().sentence_encoder
    return encoder.vectors, encoder.whitening_


@cache
def load_tumors():
    """scikit-learn's 569 tumors, the ten largest principal components, whitened."""
    return make_pipeline(StandardScaler(), PCA(10, whiten=True)).fit_transform(load_breast_cancer().data)


@cache
def load_activations():
    """Activations after a ReLU6 in the middle of EfficientNet-lite2, of crops of the pictures.

    Sets (81, 64), one row per position and the 64 channels of the largest variance; pictures and halves are
    as in `load_tiles`.
    """
    network = Network.find("efficientnet-lite2")
    sets, labels, halves = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder, "part.onnx")
        onnx.utils.extract_model(network.graph, part, [network.input], ["/_blocks.9/_swish_1/Clip_output_0"])
        session = onnxruntime.InferenceSession(part)
    for label, name in enumerate(PICTURES):
        picture = Image.fromarray(getattr(data, name)()).convert("RGB")
        middle, height = picture.width // 2, picture.height
        side = min(96, middle, height)
        for half, left in ((0, 0), (1, middle)):
            for top in np.linspace(0, height - side, 3).astype(int):
                for shift in np.linspace(0, middle - side, 3).astype(int):
                    box = (left + shift, top, left + shift + side, top + side)
                    pixels = np.asarray(picture.resize((network.size, network.size), box=box), np.float32)
                    pixels = (pixels - np.float32(network.mean)) / np.float32(network.std)
                    (found,) = session.run(None, {network.input: pixels.transpose(2, 0, 1)[None]})
                    sets.append(found[0, :, ::2, ::2].reshape(found.shape[1], -1).T)
                    labels.append(label)
                    halves.append(half)
    channels = np.argsort(-np.concatenate(sets).var(axis=0))[:64]
    return [np.ascontiguousarray(rows[:, channels]) for rows in sets], np.array(labels), np.array(halves)


def take_rows(sets, n=6000):
    """Some of the rows of all sets, in random order, each value once: overlapping tiles share rows."""
    rows = np.unique(np.concatenate(sets), axis=0)
    return rows[np.random.default_rng(0).permutation(len(rows))[:n]]


# How a choice is judged


def find_right(encode, sets, labels, folds):
    """Which of the sets a linear classifier gets right that was trained on the other folds: (n_sets,) bool.

    encode(train) returns a function from sets to vectors that has seen the training sets only.
    """
    right = np.zeros(len(sets), bool)
    for fold in np.unique(folds):
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        encoded = encode([sets[i] for i in train])
        x, y = encoded([sets[i] for i in train]), encoded([sets[i] for i in test])
        vectors = np.empty((len(sets), x.shape[1]), x.dtype)
        vectors[train], vectors[test] = x, y
        right[test] = judge(vectors @ vectors.T, labels, train, test)
    return right


def judge(gram, labels, train, test):
    """Which of the sets `test` a linear support vector machine gets right, from the inner products of all."""
    gram = gram / gram.diagonal()[train].mean()  # so that C means the same for every length of the vectors
    classifier = SVC(C=10, kernel="precomputed").fit(gram[np.ix_(train, train)], labels[train])
    return classifier.predict(gram[np.ix_(test, train)]) == labels[test]


def encode_rows(encoder, before=None):
    """An `encode` for `find_right`: `before` on the rows, then an encoder; the training sets fit both."""

    def encode(train):
        steps = [] if before is None else [OnRows(before)]
        return make_pipeline(*steps, encoder).fit(train).transform

    return encode


def fisher(mixture, before=None, **options):
    """The same with Fisher vectors under a mixture."""
    return encode_rows(FisherEncoder(mixture, **options), before)


def mix(name, n_components, **options):
    """A mixture that stops early, as is usual before Fisher vectors."""
    return MIXTURES[name](n_components, **{"max_iter": 20, "tol": 0.02, "random_state": 0, **options})


@cache
def fit_words(kind, n_components):
    vectors, whitening = load_words()
    rows = whitening.transform(vectors.vectors[:12000].astype(np.float32))
    return mix(kind, n_components, max_iter=12).fit(rows)


def find_right_sentences(mixtures, **options):
    """As `find_right`, by topic; all sentences of a function are in one fold."""
    sentences, topics, functions = load_sentences()
    vectors, whitening = load_words()
    vectors = SentenceEncoder.from_fitted(vectors, whitening, mixtures, **options).transform(sentences)
    gram = vectors @ vectors.T
    right = np.zeros(len(topics), bool)
    for train, test in GroupKFold(4, shuffle=True, random_state=0).split(topics, topics, functions):
        right[test] = judge(gram, topics, train, test)
    return right


def percent(right):
    """The share in percent and its standard error."""
    return 100 * right.mean(), 100 * np.sqrt(right.mean() * (1 - right.mean()) / right.size)


def plot_shares(axis, x, rights, label):
    means, errors = np.transpose([percent(right) for right in rights])
    print(f"  {label}:", *(f"{k}: {mean:.1f}" for k, mean in zip(x, means)))
    axis.errorbar(x, means, errors, marker="o", ms=4, capsize=3, label=label, color=COLORS.get(label))


def use_sizes(axis, sizes):
    axis.set_xscale("log")
    axis.set_xticks(sizes, [str(k) for k in sizes])
    axis.minorticks_off()
    axis.grid(alpha=0.3)


# The questions: each returns its figure


def draw_components():
    """How many components does a Fisher vector need?"""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    sizes = [1, 2, 4, 8, 16, 32, 64]
    for axis, title, load, before in (
        (axes[0], "tiles: DAISY, PCA to 32", load_tiles, PCA(32)),
        (axes[1], "digits: 3 x 3 patches", load_patches, None),
    ):
        print(title)
        for name in ("GMM", "HGLMM"):
            plot_shares(axis, sizes, [find_right(fisher(mix(name, k), before), *load()) for k in sizes], name)
        axis.set(title=title, xlabel="components")
        use_sizes(axis, sizes)
    sizes = [1, 2, 4, 8, 16]
    print("sentences")
    for name in ("GMM", "HGLMM"):
        plot_shares(axes[2], sizes, [find_right_sentences([fit_words(name, k)]) for k in sizes], name)
    mean, _ = percent(find_right_sentences([]))
    print(f"  mean of the word vectors: {mean:.1f}")
    axes[2].axhline(mean, color="black", ls=":", lw=1, label="mean of the words")
    axes[2].set(title="sentences: 300-D word vectors", xlabel="components")
    use_sizes(axes[2], sizes)
    axes[0].set_ylabel("classified correctly (%)")
    axes[2].legend()
    return figure


def draw_encoders():
    """Bag of words, VLAD or Fisher vector, and what goes beyond the paper."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    sizes = [2, 4, 8, 16, 32, 64]
    for axis, title, load, before in (
        (axes[0], "tiles: DAISY, PCA to 32", load_tiles, PCA(32)),
        (axes[1], "digits: 3 x 3 patches", load_patches, None),
    ):
        encoders = {
            "bag of words": lambda k: BagOfWordsEncoder(KMeans(k, n_init=1, max_iter=20, random_state=0)),
            "VLAD": lambda k: VLADEncoder(KMeans(k, n_init=1, max_iter=20, random_state=0)),
            "Fisher vector": lambda k: FisherEncoder(mix("GMM", k)),
            "with norm='intra'": lambda k: FisherEncoder(mix("GMM", k), norm="intra"),
            "with weight gradients": lambda k: FisherEncoder(mix("GMM", k), weight_gradients=True),
        }
        print(title)
        for name, make in encoders.items():
            plot_shares(axis, sizes, [find_right(encode_rows(make(k), before), *load()) for k in sizes], name)
        axis.set(title=title, xlabel="components or clusters")
        use_sizes(axis, sizes)
    axes[0].set_ylabel("classified correctly (%)")
    axes[1].legend(fontsize=8)
    return figure


def draw_density():
    """How many components does a density need?"""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    sizes = [1, 2, 4, 8, 16, 32]
    rows = PCA(8, whiten=True).fit_transform(take_rows(load_tiles()[0], 20000))
    for axis, title, X in (
        (axes[0], "569 tumors, 10 dimensions", load_tumors()),
        (axes[1], "2,000 descriptors, 8 dimensions", rows[:2000]),
        (axes[2], "20,000 descriptors, 8 dimensions", rows),
    ):
        folds = np.arange(len(X)) % 5
        held_out, bic, aic = [], [], []
        for k in sizes:
            mixture = HybridMixture(k, n_init=3, random_state=0)
            parts = range(5 if len(X) < 5000 else 2)
            held_out.append(np.mean([mixture.fit(X[folds != f]).score(X[folds == f]) for f in parts]))
            mixture.fit(X)
            bic.append(-mixture.bic(X) / 2 / len(X))
            aic.append(-mixture.aic(X) / 2 / len(X))
        print(title)
        for name, values in (("held-out rows", held_out), ("−AIC / 2N", aic), ("−BIC / 2N", bic)):
            print(f"  {name}:", *(f"{k}: {value:.3f}" for k, value in zip(sizes, values)))
            (line,) = axis.plot(sizes, values, marker="o", ms=4, label=name)
            best = int(np.argmax(values))
            axis.plot(sizes[best], values[best], "o", ms=11, mfc="none", color=line.get_color())
        axis.set(title=title, xlabel="components", ylim=(min(bic) - 0.1, max(held_out) + 0.3))
        use_sizes(axis, sizes)
    axes[0].set_ylabel("log likelihood of a row (nats)")
    axes[2].legend(title="circle: best", fontsize=8)
    return figure


def draw_outliers():
    """What do outliers do to a density, and to clusters?"""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    ways = {
        "Gaussian": ["gaussian"],
        "hybrid": ["gaussian", "laplace"],
        "t, 4 degrees": ["student-t"],
        "t, free degrees": [StudentT(df=None)],
    }
    X = StandardScaler().fit_transform(load_breast_cancer().data)
    folds, sizes = np.arange(len(X)) % 5, [1, 2, 4, 8, 16]
    print("tumors, 30 dimensions, log likelihood of a held-out number")
    for name, families in ways.items():
        found = []
        for k in sizes:
            mixture = Mixture(k, families=families, n_init=3, random_state=0)
            scores = [mixture.fit(X[folds != f]).score(X[folds == f]) for f in range(5)]
            found.append(np.mean(scores) / X.shape[1])
        print(f"  {name}:", *(f"{k}: {value:.3f}" for k, value in zip(sizes, found)))
        left.plot(sizes, found, marker="o", ms=4, label=name)
    left.set(title="tumors", xlabel="components", ylabel="log likelihood of a held-out number (nats)")
    use_sizes(left, sizes)

    shares, seeds = [0, 0.5, 1, 2, 5, 10], range(10)
    print("three clusters, agreement with the truth (adjusted Rand index) by the percentage of outliers")
    for name, families in ways.items():
        found = [np.mean([find_clusters(families, share / 100, seed) for seed in seeds]) for share in shares]
        print(f"  {name}:", *(f"{share}: {value:.3f}" for share, value in zip(shares, found)))
        right.plot(shares, found, marker="o", ms=4, label=name)
    right.set(title="three clusters", xlabel="outliers (%)", ylabel="agreement with the truth")
    right.grid(alpha=0.3)
    right.legend(fontsize=8)
    return figure


def find_clusters(families, share, seed):
    """The agreement of a fit of three components with three clusters, of rows that are no outliers."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=2000)
    X = rng.normal(size=(2000, 8)) + 3 * rng.normal(size=(3, 8))[truth] / 2
    is_outlier = rng.uniform(size=2000) < share
    X[is_outlier] = rng.normal(scale=20, size=(is_outlier.sum(), 8))
    found = Mixture(3, families=families, n_init=5, random_state=seed).fit_predict(X)
    return adjusted_rand_score(truth[~is_outlier], found[~is_outlier])


def draw_normalization():
    """Power, length, PCA first, whitening."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    powers = [0.125, 0.25, 0.5, 0.75, 1]
    tiles = load_tiles()
    for axis, title, judged in (
        (axes[0], "tiles", lambda **o: find_right(fisher(mix("HGLMM", 8), PCA(32), **o), *tiles)),
        (axes[1], "sentences", lambda **o: find_right_sentences([fit_words("HGLMM", 8)], **o)),
    ):
        for norm, label in (("l2", "unit length"), (None, "as it is")):
            print(title, end="")
            plot_shares(axis, powers, [judged(power=power, norm=norm) for power in powers], label)
        axis.set(title=title, xlabel="power", ylabel="classified correctly (%)")
        axis.grid(alpha=0.3)
        axis.legend()
    sizes = [8, 16, 32, 64, 104]
    for whiten, label in ((False, "PCA"), (True, "PCA, whitened")):
        rights = [find_right(fisher(mix("HGLMM", 8), PCA(d, whiten=whiten)), *tiles) for d in sizes]
        plot_shares(axes[2], sizes, rights, label)
    mean, _ = percent(find_right(fisher(mix("HGLMM", 8)), *tiles))
    print(f"  no PCA, 104 dimensions: {mean:.1f}")
    axes[2].axhline(mean, color="black", ls=":", lw=1, label="no PCA, 104 dimensions")
    axes[2].set(title="tiles", xlabel="dimensions after PCA")
    use_sizes(axes[2], sizes)
    axes[2].legend()
    return figure


def fit_starts(Model, X, n_starts, **options):
    """The mean log likelihood of each of several fits."""
    return np.array([Model(random_state=seed, **options).fit(X).score(X) for seed in range(n_starts)])


def draw_start():
    """k-means++, k-means or random rows; how far apart the local optima are."""
    rng = np.random.default_rng(0)
    blobs = (6 * rng.normal(size=(15, 3)))[rng.integers(15, size=1500)] + rng.normal(size=(1500, 3))
    rows = PCA(8, whiten=True).fit_transform(take_rows(load_tiles()[0], 3000))
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    n_starts = 30
    for axis, title, X, k in (
        (axes[0], "15 blobs in 3 dimensions, K = 15", blobs, 15),
        (axes[1], "569 tumors in 10 dimensions, K = 5", load_tumors(), 5),
        (axes[2], "3,000 descriptors in 8 dimensions, K = 16", rows, 16),
    ):
        shared = {"n_components": k, "max_iter": 200}
        scores = {
            start: fit_starts(GaussianMixture, X, n_starts, init_params=start, **shared) for start in STARTS
        }
        scores["scikit-learn,\nk-means"] = fit_starts(
            PeerMixture, X, n_starts, covariance_type="diag", **shared
        )
        best = max(found.max() for found in scores.values())
        print(title)
        for place, (name, found) in enumerate(scores.items()):
            near = np.mean(found > best - 0.02)
            print(
                f"  {name!r}: median {np.median(found) - best:.3f}, worst {found.min() - best:.3f}, "
                f"within 0.02 of the best {near:.0%}"
            )
            axis.plot(place + rng.uniform(-0.25, 0.25, n_starts), found - best, "o", ms=3, alpha=0.6)
            axis.plot([place - 0.3, place + 0.3], 2 * [np.median(found) - best], color="black")
        axis.set_xticks(range(len(scores)), scores, fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3, axis="y")
    axes[0].set_ylabel("log likelihood of a row,\nminus that of the best fit (nats)")
    return figure


def draw_switching():
    """Two fits of the same data number their components differently, and may be different optima."""
    X = load_tumors()
    fits = [GaussianMixture(5, random_state=seed, max_iter=500, tol=1e-6).fit(X) for seed in range(30)]
    scores = np.array([mixture.score(X) for mixture in fits])
    best = fits[int(scores.argmax())]
    agreements = []
    for mixture in fits:
        shared = np.array(
            [[np.sum((mixture.predict(X) == j) & (best.predict(X) == k)) for k in range(5)] for j in range(5)]
        )
        rows, columns = linear_sum_assignment(-shared)
        agreements.append((shared.trace() / len(X), shared[rows, columns].sum() / len(X)))
    as_numbered, matched = 100 * np.transpose(agreements)
    others = np.arange(len(fits)) != int(scores.argmax())
    print(f"same label: {as_numbered[others].mean():.0f} %; after matching: {matched[others].mean():.0f} %")
    print(f"correlation of score and agreement: {np.corrcoef(scores[others], matched[others])[0, 1]:.2f}")
    figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
    for values, label, marker in (
        (as_numbered, "as numbered", "x"),
        (matched, "after matching the components", "o"),
    ):
        axis.plot(
            scores[others] - scores.max(), values[others], marker, ms=5, mfc="none", alpha=0.8, label=label
        )
    axis.set(
        xlabel="log likelihood of a row, minus that of the best fit (nats)",
        ylabel="rows in the component\nof the best fit (%)",
        ylim=(0, 102),
    )
    axis.grid(alpha=0.3)
    axis.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


def draw_ridges():
    """Ridges, and features of different units."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    digits = load_digits().images.reshape(-1, 64)
    ridges = np.logspace(-6, 0.5, 14)
    for n, hue in ((100, "#c0392b"), (1200, "#4c72b0")):
        X, Y = digits[:, :32], digits[:, 32:]
        cca = RegularizedCCA(8)
        statistics = cca.statistics(X[:n], Y[:n])
        path = [next(cca.path(statistics, reg_x=[ridge], reg_y=[ridge])) for ridge in ridges]
        seen = [each.score(X[:n], Y[:n]) for each in path]
        held_out = [each.score(X[1200:], Y[1200:]) for each in path]
        print(n, "pairs, held-out:", *(f"{r:.0e}: {score:.3f}" for r, score in zip(ridges, held_out)))
        left.plot(ridges, seen, ls=":", color=hue, label=f"{n:,} training pairs")
        left.plot(ridges, held_out, marker="o", ms=3, color=hue, label="held-out pairs")
    left.set(
        xscale="log",
        xlabel="ridge (reg_x = reg_y)",
        ylabel="mean correlation",
        title="halves of digits, k = 8",
    )
    tumors = load_breast_cancer().data[:, :20]
    folds = np.arange(len(tumors)) % 5
    for name, standardize in (("as they are", False), ("standardize=True", True)):
        found = []
        for ridge in ridges:
            cca = RegularizedCCA(5, reg_x=ridge, reg_y=ridge, standardize=standardize)
            scores = []
            for fold in range(5):
                train, test = tumors[folds != fold], tumors[folds == fold]
                scores.append(cca.fit(train[:, :10], train[:, 10:]).score(test[:, :10], test[:, 10:]))
            found.append(np.mean(scores))
        print(name, *(f"{r:.0e}: {score:.3f}" for r, score in zip(ridges, found)))
        right.plot(ridges, found, marker="o", ms=3, label=name)
    right.set(xscale="log", xlabel="ridge (reg_x = reg_y)", title="tumors: means and their errors, k = 5")
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    return figure


def draw_hybrid():
    """When is the hybrid better than the Gaussian mixture: as a density, and before a classifier?"""
    vectors, whitening = load_words()
    words = whitening.transform(vectors.vectors[:8000].astype(np.float32))
    rng = np.random.default_rng(0)
    gauss = rng.normal(size=(10, 8))[rng.integers(10, size=6000)] + rng.normal(size=(6000, 8))
    densities = {
        "ten Gaussian blobs, 8-D": gauss,
        "DAISY after PCA, 32-D": PCA(32).fit_transform(take_rows(load_tiles()[0])),
        "DAISY, 104-D": take_rows(load_tiles()[0]),
        "3 x 3 patches after PCA, 8-D": PCA(8, whiten=True).fit_transform(
            take_rows(load_patches()[0])[:, :9]
        ),
        "ReLU6 features, 64-D": take_rows(load_activations()[0]),
        "ReLU6, min_scale=0.1": take_rows(load_activations()[0]),
        "ReLU6 features after PCA, 32-D": PCA(32).fit_transform(take_rows(load_activations()[0])),
        "tumors after PCA, 10-D": load_tumors(),
        "word vectors after PCA, 300-D": PCA(300, whiten=True).fit_transform(vectors.vectors[:8000]),
        "word vectors after ICA, 300-D": words,
    }
    gains, cells = {"LMM": [], "HGLMM": []}, []
    print("held-out log likelihood per number, minus that of the GMM; cells that are Laplacian")
    for title, X in densities.items():
        X = np.asarray(X, np.float64)
        train, test = X[::2], X[1::2]
        limit = 0.1 if "min_scale" in title else 1e-3
        fits = {name: mix(name, 8, max_iter=40, min_scale=limit).fit(train) for name in MIXTURES}
        score = {name: mixture.score(test) / X.shape[1] for name, mixture in fits.items()}
        cells.append(100 * fits["HGLMM"].choice_.mean())
        for name, found in gains.items():
            found.append(score[name] - score["GMM"])
        print(f"  {title}: LMM {gains['LMM'][-1]:+.4f}, HGLMM {gains['HGLMM'][-1]:+.4f}; {cells[-1]:.0f} %")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
    for place, (name, found) in enumerate(gains.items()):
        left.barh(np.arange(len(found)) + 0.2 * (2 * place - 1), found, 0.38, color=COLORS[name], label=name)
    left.set_yticks(range(len(densities)), densities, fontsize=8)
    left.invert_yaxis()
    left.axvline(0, color="black", lw=1)
    left.set_title("as a density", fontsize=10)
    left.set_xlabel("held-out nats per number, minus GMM")
    left.grid(alpha=0.3, axis="x")
    left.legend()

    right_of_fisher = {
        "tiles: DAISY after PCA": lambda mixture: find_right(fisher(mixture, PCA(32)), *load_tiles()),
        "tiles: DAISY": lambda mixture: find_right(fisher(mixture), *load_tiles()),
        "tiles: 4 descriptors each": lambda mixture: find_right(
            fisher(mixture, PCA(32)), *load_small_tiles()
        ),
        "tiles: ReLU6": lambda mixture: find_right(fisher(mixture), *load_activations()),
        "tiles: ReLU6, min_scale=0.1": lambda mixture: find_right(
            fisher(mixture.set_params(min_scale=0.1)), *load_activations()
        ),
        "tiles: ReLU6 after PCA": lambda mixture: find_right(fisher(mixture, PCA(32)), *load_activations()),
        "digits: patches": lambda mixture: find_right(fisher(mixture), *load_patches()),
        "sentences: words after ICA": lambda mixture: find_right_sentences([mixture.fit(words)]),
    }
    right_of_likelihood = {
        "tiles: DAISY after PCA": lambda mixture: find_likely(mixture, PCA(32), *load_tiles()),
        "tiles: DAISY": lambda mixture: find_likely(mixture, None, *load_tiles()),
        "tiles: 4 descriptors each": lambda mixture: find_likely(mixture, PCA(32), *load_small_tiles()),
        "tiles: ReLU6": lambda mixture: find_likely(mixture, None, *load_activations()),
        "tiles: ReLU6, min_scale=0.1": lambda mixture: find_likely(
            mixture.set_params(min_scale=0.1), None, *load_activations()
        ),
        "tiles: ReLU6 after PCA": lambda mixture: find_likely(mixture, PCA(32), *load_activations()),
        "digits: patches": lambda mixture: find_likely(mixture, None, *load_patches()),
        "digits: patches, min_scale=0.1": lambda mixture: find_likely(
            mixture.set_params(min_scale=0.1), None, *load_patches()
        ),
    }
    plot_differences(middle, "before a classifier", right_of_fisher, 8)
    plot_differences(right, "a mixture for each class", right_of_likelihood, 4)
    return figure


def load_small_tiles():
    """The tiles with four of their 36 descriptors."""
    rng = np.random.default_rng(0)
    tiles, pictures, halves = load_tiles()
    return [tile[rng.choice(len(tile), 4, replace=False)] for tile in tiles], pictures, halves


def find_likely(mixture, before, sets, labels, folds):
    """As `find_right`: the class under whose mixture the set has the highest likelihood."""
    right = np.zeros(len(sets), bool)
    for fold in np.unique(folds):
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        reduced = sets if before is None else OnRows(before).fit([sets[i] for i in train]).transform(sets)
        rows = np.concatenate([reduced[i] for i in test])
        starts = np.concatenate([[0], np.cumsum([len(reduced[i]) for i in test])[:-1]])
        likelihoods = []
        for label in np.unique(labels):
            of_class = np.concatenate([reduced[i] for i in train if labels[i] == label])
            likelihoods.append(np.add.reduceat(mixture.fit(of_class).score_samples(rows), starts))
        right[test] = np.argmax(likelihoods, axis=0) == labels[test]
    return right


def plot_differences(axis, title, tasks, n_components):
    """The points by which LMM and HGLMM are better than GMM, means of three seeds, with 95 % intervals."""
    print(title)
    for place, (task, run) in enumerate(tasks.items()):
        rights = {
            name: np.mean([run(mix(name, n_components, random_state=seed)) for seed in range(3)], axis=0)
            for name in MIXTURES
        }
        shares = ", ".join(f"{name} {100 * right.mean():.1f}" for name, right in rights.items())
        print(f"  {task}: {shares}", end="")
        for shift, name in ((-0.12, "LMM"), (0.12, "HGLMM")):
            difference = 100 * (rights[name] - rights["GMM"])
            mean, error = difference.mean(), 1.96 * difference.std() / np.sqrt(difference.size)
            print(f"; {name} − GMM {mean:+.1f} [{mean - error:+.1f}, {mean + error:+.1f}]", end="")
            axis.errorbar(mean, place + shift, xerr=error, fmt="o", ms=4, capsize=3, color=COLORS[name])
        print()
    axis.set_yticks(range(len(tasks)), tasks, fontsize=8)
    axis.invert_yaxis()
    axis.axvline(0, color="black", lw=1)
    axis.grid(alpha=0.3, axis="x")
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("points of accuracy, minus GMM")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=sorted(QUESTIONS))
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # EM stops early on purpose
    for name in options.names:
        started = time.process_time()
        figure = QUESTIONS[name]()
        figure.savefig(options.out / f"choosing-{name}.png", dpi=110, metadata={"Software": None})
        print(f"{name}: {time.process_time() - started:.0f} s of one core")


QUESTIONS = {
    "components": draw_components,
    "encoders": draw_encoders,
    "density": draw_density,
    "outliers": draw_outliers,
    "normalization": draw_normalization,
    "start": draw_start,
    "switching": draw_switching,
    "ridges": draw_ridges,
    "hybrid": draw_hybrid,
}

if __name__ == "__main__":
    main()
