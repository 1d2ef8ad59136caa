"""
Classic image classification with Fisher vectors
================================================

Before deep networks, Fisher vectors of local descriptors were the best way to classify images, and they
still work with few images and without a GPU. We cut pictures into tiles and predict from which picture a
tile comes. Training uses the left half of each picture and testing the right half, so no pixel is in
both.
"""

import matplotlib.pyplot as plt
import numpy as np
from fishermix import FisherEncoder, GaussianMixture, HybridMixture, OnRows
from skimage import color, data
from skimage.feature import daisy
from sklearn.decomposition import PCA
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

NAMES = ["brick", "grass", "gravel", "camera", "coins", "moon", "text", "page"]
TILE = 64


def describe(tile):
    """DAISY descriptors of a tile on a dense grid: one set of vectors (n, 104)."""
    found = daisy(tile, step=6, radius=9, rings=2, histograms=6)
    return found.reshape(-1, found.shape[2]).astype(np.float32)


def cut(half):
    """The tiles of half a picture, next to each other with half of them overlapping."""
    height, width = half.shape
    corners = [(r, c) for r in range(0, height - TILE + 1, 32) for c in range(0, width - TILE + 1, 32)]
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
# PCA, a mixture, Fisher vectors and a linear classifier; how much do more components help?

sizes = [1, 2, 4, 8, 16]
accuracy = {}
for Model in (GaussianMixture, HybridMixture):
    for k in sizes:
        pipeline = make_pipeline(
            OnRows(PCA(20)), FisherEncoder(Model(k, tol=0.05, random_state=0)), LinearSVC(C=10)
        )
        accuracy[Model.__name__, k] = pipeline.fit(train, y_train).score(test, y_test)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for Model in (GaussianMixture, HybridMixture):
    left.plot(sizes, [100 * accuracy[Model.__name__, k] for k in sizes], marker="o", label=Model.__name__)
left.set(xscale="log", xticks=sizes, xticklabels=sizes, xlabel="components", ylabel="test accuracy (%)")
left.legend()
ConfusionMatrixDisplay.from_predictions(
    y_test, pipeline.predict(test), display_labels=NAMES, ax=right, xticks_rotation=60, colorbar=False
)
plt.show()
