"""The classic pipeline: local descriptors, PCA, mixture, Fisher vectors, and two classifiers.

    python examples/classic_pipeline.py [--out classic_pipeline.png]

The pictures are those that come with scikit-image. Each is cut into tiles, each tile is one set of dense
DAISY descriptors, and the task is to predict from which picture a tile comes. Training uses the left half of
each picture and testing the right half, so that no pixel is in both.
"""

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from fishermix import FisherEncoder, GaussianMixture, HybridMixture, LaplacianMixture, OnRows
from skimage import color, data
from skimage.feature import daisy
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

PICTURES = [
    "brick",
    "grass",
    "gravel",
    "camera",
    "coins",
    "moon",
    "text",
    "page",
    "coffee",
    "chelsea",
    "rocket",
]
TILE, DIMENSIONS = 48, 24  # pixels; after PCA
MIXTURES = {"GMM": GaussianMixture, "LMM": LaplacianMixture, "HGLMM": HybridMixture}


def describe_tiles(picture: np.ndarray) -> list[np.ndarray]:
    """Descriptors (n_i, 104) of all tiles of one gray picture."""
    margin, step = 8, 4
    half_overlap = TILE // 2
    corners = [
        (top, left)
        for top in range(0, picture.shape[0] - TILE + 1, half_overlap)
        for left in range(0, picture.shape[1] - TILE + 1, half_overlap)
    ]
    described = daisy(picture, step=step, radius=margin, rings=2, histograms=6)
    found = []
    for top, left in corners:
        rows = slice(max(0, (top - margin) // step), max(0, (top + TILE - 3 * margin) // step))
        columns = slice(max(0, (left - margin) // step), max(0, (left + TILE - 3 * margin) // step))
        descriptors = described[rows, columns].reshape(-1, described.shape[2])
        if len(descriptors):
            found.append(descriptors.astype(np.float32))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("classic_pipeline.png"))
    parser.add_argument("--components", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    options = parser.parse_args()

    train, test, train_labels, test_labels = [], [], [], []
    for label, name in enumerate(PICTURES):
        picture = getattr(data, name)()
        gray = color.rgb2gray(picture) if picture.ndim == 3 else picture / 255
        middle = gray.shape[1] // 2
        for half, sets, labels in (
            (gray[:, :middle], train, train_labels),
            (gray[:, middle:], test, test_labels),
        ):
            found = describe_tiles(half)
            sets += found
            labels += [label] * len(found)
    each = np.mean([len(tile) for tile in train])
    print(f"{len(train)} tiles to train on, {len(test)} to test, about {each:.0f} descriptors each")

    accuracy = {}
    print(f"{'mixture':8} {'K':>3} {'length':>7} {'nearest':>8} {'linear':>7} {'seconds':>8}")
    for name, kind in MIXTURES.items():
        for n_components in options.components:
            encode = make_pipeline(
                OnRows(PCA(DIMENSIONS, random_state=0)), FisherEncoder(kind(n_components, random_state=0))
            ).fit(train)
            start = time.perf_counter()
            x, y = encode.transform(train), encode.transform(test)
            seconds = time.perf_counter() - start
            nearest = KNeighborsClassifier(1, metric="cosine").fit(x, train_labels).score(y, test_labels)
            linear = LinearSVC(random_state=0).fit(x, train_labels).score(y, test_labels)
            accuracy[name, n_components] = nearest, linear
            print(f"{name:8} {n_components:3} {x.shape[1]:7} {nearest:8.1%} {linear:7.1%} {seconds:8.2f}")

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for which, (axis, title) in enumerate(zip(axes, ("nearest neighbor", "linear classifier"))):
        for name in MIXTURES:
            shares = [100 * accuracy[name, k][which] for k in options.components]
            axis.plot(options.components, shares, marker="o", label=name)
        axis.set(xscale="log", xlabel="components", title=title)
        axis.set_xticks(options.components, [str(k) for k in options.components])
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("tiles classified correctly, %")
    axes[0].legend()
    figure.savefig(options.out, dpi=120)
    print(f"plot: {options.out}")


if __name__ == "__main__":
    main()
