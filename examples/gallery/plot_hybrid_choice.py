"""
What the hybrid mixture chooses
===============================

A `HybridMixture` decides for every component and every dimension whether a Gaussian or a Laplacian fits
the data better. Here are the word vectors of the model in the package: ICA makes their dimensions
independent, and the mixture finds that some of them have sharp peaks and heavy tails.
"""

import matplotlib.pyplot as plt
import numpy as np
from fishermix import HybridMixture
from fishermix_photos import ImageTextModel

encoder = ImageTextModel.load().sentence_encoder
X = encoder.whitening_.transform(np.asarray(encoder.vectors.vectors[:12000], np.float32))
mixture = HybridMixture(n_components=10, tol=0.1, random_state=0).fit(X)
print(f"{len(X)} word vectors of {X.shape[1]} dimensions")
print(f"{mixture.choice_.mean():.0%} of the cells (component, dimension) are Laplacian")

# %%
# The densities that were chosen, over histograms of the vectors that belong to the largest component.
# Each vector counts with its posterior probability. The dashed line is the family that was not chosen.

k = int(mixture.weights_.argmax())
posterior = mixture.predict_proba(X)[:, k]
gaussian, laplace = mixture.families_
moments = np.average(X, axis=0, weights=posterior)
deviations = np.sqrt(np.average((X - moments) ** 2, axis=0, weights=posterior))


def draw(axis, d):
    location, scale = mixture.locations_[k, d], mixture.scales_[k, d]
    chosen, other = (laplace, gaussian) if mixture.choice_[k, d] else (gaussian, laplace)
    width = 4 * deviations[d]
    grid = np.linspace(location - width, location + width, 400)
    axis.hist(X[:, d], 60, range=(grid[0], grid[-1]), weights=posterior, density=True, color="#b9c8d8")
    axis.plot(
        grid, np.exp(chosen.log_density((grid - location) / scale)) / scale, "#c0392b", label=chosen.name
    )
    rough = deviations[d] if other is gaussian else deviations[d] / np.sqrt(2)
    density = np.exp(other.log_density((grid - moments[d]) / rough)) / rough
    axis.plot(grid, density, "#555555", ls="--", lw=1, label=other.name)
    axis.set(title=f"dimension {d}", yticks=[])
    axis.legend(fontsize=8)


kurtosis = np.average(((X - moments) / deviations) ** 4, axis=0, weights=posterior)
dimensions = [*np.argsort(kurtosis)[:3], *np.argsort(kurtosis)[-3:]]
figure, axes = plt.subplots(2, 3, figsize=(10, 5.5), layout="constrained")
for axis, d in zip(axes.flat, dimensions):
    draw(axis, d)
plt.show()

# %%
# The choice follows the shape: dimensions with heavy tails (a kurtosis above 3) become Laplacian.

figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
bins = np.linspace(kurtosis.min(), np.quantile(kurtosis, 0.98), 40)
axis.hist(
    [kurtosis[mixture.choice_[k] == 0], kurtosis[mixture.choice_[k] == 1]],
    bins,
    stacked=True,
    color=["#4c72b0", "#c0392b"],
    label=["Gaussian chosen", "Laplacian chosen"],
)
axis.axvline(3, color="black", lw=1, ls=":")
axis.set(xlabel="kurtosis of a dimension within the largest component", ylabel="dimensions")
axis.legend()
plt.show()
