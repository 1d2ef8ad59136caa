"""
Classic image classification with Fisher vectors
================================================

Before deep networks, Fisher vectors of local descriptors were the best way to classify images, and they
still work with few images and without a GPU. We cut pictures into tiles and predict from which picture a
tile comes. Training uses the left half of each picture and testing the right half, so no pixel is in
both. The same task is solved twice: with fishermix in a pipeline, and with scikit-image's functions.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from fishermix import FisherEncoder, GaussianMixture, HybridMixture, OnRows
from skimage import color, data
from skimage.feature import daisy, fisher_vector, learn_gmm
from sklearn.decomposition import PCA
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

NAMES = ["astronaut", "brick", "camera", "chelsea", "coffee", "coins", "grass", "gravel", "moon", "rocket"]
TILE = 48


def describe(tile):
    """DAISY descriptors of a tile on a dense grid: one set of vectors (36, 104)."""
    found = daisy(tile, step=6, radius=8, rings=2, histograms=6)
    return found.reshape(-1, found.shape[2]).astype(np.float32)


def cut(half):
    """At most 60 tiles of half a picture; each overlaps its neighbors by half."""
    height, width = half.shape
    step = TILE // 2
    corners = [(r, c) for r in range(0, height - TILE + 1, step) for c in range(0, width - TILE + 1, step)]
    return [describe(half[r : r + TILE, c : c + TILE]) for r, c in corners[:60]]


train, test, y_train, y_test = [], [], [], []
for label, name in enumerate(NAMES):
    picture = getattr(data, name)()
    gray = color.rgb2gray(picture) if picture.ndim == 3 else picture / 255
    middle = gray.shape[1] // 2
    for sets, labels, half in ((train, y_train, gray[:, :middle]), (test, y_test, gray[:, middle:])):
        tiles = cut(half)
        sets += tiles
        labels += [label] * len(tiles)
print(f"{len(train)} training and {len(test)} test tiles, {len(train[0])} descriptors per tile")

# %%
# The task in fishermix, in two lines. A sample is a set of descriptors, and all steps are one scikit-learn
# estimator: `GridSearchCV` could tune it.


def use_fishermix(mixture):
    pipeline = make_pipeline(OnRows(PCA(32, whiten=True)), FisherEncoder(mixture), LinearSVC(C=10))
    return pipeline.fit(train, y_train).predict(test)


# %%
# The same with `learn_gmm` and `fisher_vector` of scikit-image, in seven lines. They are functions: PCA, the
# loop over the images and the parameters for the test images are up to you.


def use_scikit_image(n_components):
    pca = PCA(32, whiten=True).fit(np.concatenate(train))
    reduced, reduced_test = [pca.transform(x) for x in train], [pca.transform(x) for x in test]
    options = {"covariance_type": "diag", "random_state": 0}
    mixture = learn_gmm(reduced, n_modes=n_components, gm_args=options)
    vectors = [fisher_vector(x, mixture, improved=True) for x in reduced]
    classifier = LinearSVC(C=10).fit(vectors, y_train)
    return classifier.predict([fisher_vector(x, mixture, improved=True) for x in reduced_test])


use_fishermix(HybridMixture(2, random_state=0))  # compiles, once per installation
ways = {
    "fishermix, GMM": (use_fishermix, lambda k: GaussianMixture(k, random_state=0)),
    "fishermix, HGLMM": (use_fishermix, lambda k: HybridMixture(k, random_state=0)),
    "scikit-image, GMM": (use_scikit_image, lambda k: k),
}
sizes = [1, 2, 4, 8, 16, 32]
accuracy, seconds, predicted = {}, {}, {}
for name, (use, make) in ways.items():
    for k in sizes:
        start = time.process_time()
        predicted[name, k] = use(make(k))
        seconds[name, k] = time.process_time() - start
        accuracy[name, k] = np.mean(predicted[name, k] == y_test)
    print(
        f"{name:17} with 16 components {accuracy[name, 16]:.1%} of the tiles are right, "
        f"{seconds[name, 16]:.1f} s of processor time"
    )

# %%
# Both compute the same Fisher vectors from the same mixture; the fits differ by their starts.

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained")
for name in ways:
    left.plot(sizes, [100 * accuracy[name, k] for k in sizes], marker="o", label=name)
    middle.plot(sizes, [seconds[name, k] for k in sizes], marker="o", label=name)
left.set(xscale="log", xlabel="components", ylabel="tiles classified correctly (%)")
middle.set(xscale="log", yscale="log", xlabel="components", ylabel="processor time (s)")
for axis in (left, middle):
    axis.set_xticks(sizes, sizes)
    axis.minorticks_off()
    axis.grid(alpha=0.3)
middle.legend()
ConfusionMatrixDisplay.from_predictions(
    y_test,
    predicted["fishermix, HGLMM", 16],
    display_labels=NAMES,
    ax=right,
    xticks_rotation=60,
    colorbar=False,
)
plt.show()
