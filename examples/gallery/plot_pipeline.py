"""
Fisher vectors in a Pipeline, tuned by GridSearchCV
===================================================

A sample is a *set* of vectors. `OnRows` applies a scikit-learn transformer such as PCA to the rows of
the sets, `FisherEncoder` makes one vector of each set, and any classifier follows. `GridSearchCV` tunes
all steps together.

The sets here are the 3 x 3 patches of handwritten digits, together with their positions.
"""

import matplotlib.pyplot as plt
import numpy as np
from fishermix import FisherEncoder, GaussianMixture, HybridMixture, LaplacianMixture, OnRows
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

digits = load_digits()
windows = np.lib.stride_tricks.sliding_window_view(digits.images / 16, (3, 3), axis=(1, 2))
patches = windows.reshape(len(windows), 36, 9)
rows, columns = np.divmod(np.arange(36), 6)
positions = np.broadcast_to(np.column_stack([rows, columns]) / 5, (len(patches), 36, 2))
sets = np.concatenate([patches, positions], axis=2).astype(
    np.float32
)  # (1797 digits, 36 patches, 11 numbers)
train, test, y_train, y_test = train_test_split(sets, digits.target, test_size=0.4, random_state=0)

# %%
# Three kinds of mixture, three sizes, two dimensions of PCA: 18 pipelines, three folds each.

pipeline = make_pipeline(
    OnRows(PCA(8)), FisherEncoder(HybridMixture(8, tol=0.05, random_state=0)), LinearSVC(C=10)
)
grid = {
    "onrows__transformer__n_components": [4, 8],
    "fisherencoder__mixture": [
        GaussianMixture(tol=0.05, random_state=0),
        LaplacianMixture(tol=0.05, random_state=0),
        HybridMixture(tol=0.05, random_state=0),
    ],
    "fisherencoder__mixture__n_components": [2, 8, 16],
}
search = GridSearchCV(pipeline, grid, cv=3).fit(train, y_train)
print(f"best: {search.best_params_}")
print(f"accuracy on held-out digits: {search.score(test, y_test):.1%}")

# %%
# More components help each mixture; PCA to 8 dimensions loses little.

results = search.cv_results_
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for axis, dimensions in zip(axes, [4, 8]):
    for kind in (GaussianMixture, LaplacianMixture, HybridMixture):
        chosen = [
            type(mixture) is kind and width == dimensions
            for mixture, width in zip(
                results["param_fisherencoder__mixture"], results["param_onrows__transformer__n_components"]
            )
        ]
        axis.errorbar(
            results["param_fisherencoder__mixture__n_components"][chosen].astype(int),
            100 * results["mean_test_score"][chosen],
            100 * results["std_test_score"][chosen],
            marker="o",
            capsize=3,
            label=kind.__name__,
        )
    axis.set(title=f"PCA to {dimensions} dimensions", xlabel="components")
axes[0].set_ylabel("accuracy in cross-validation (%)")
axes[1].legend()
plt.show()
