"""
A mixture with a custom family
==============================

Any density on the line can join a mixture: define its logarithm, the negative derivative of that, and
how to draw from it. Here is the hyperbolic secant, which lies between the Gaussian and the Laplacian.
"""

import matplotlib.pyplot as plt
import numpy as np
from fishermix import FisherEncoder, Mixture
from fishermix.mixture import Family, check_family


class Sech(Family):
    """f(z) = sech(pi z / 2) / 2"""

    name = "sech"

    def log_density(self, z):
        a = np.pi / 2 * np.abs(z)
        return -a - np.log1p(np.exp(-2 * a))

    def location_score(self, z):
        return np.pi / 2 * np.tanh(np.pi / 2 * z)

    def sample(self, rng, size):
        return 2 / np.pi * np.log(np.tan(np.pi / 2 * rng.uniform(size=size)))


check_family(Sech())  # raises an error that names each method that disagrees with the others

# %%
# Three columns, one drawn from each family. The mixture is offered all three for every column.

rng = np.random.default_rng(0)
names = ["Gaussian column", "Laplacian column", "sech column"]
X = np.column_stack([rng.normal(size=20000), rng.laplace(size=20000), Sech().sample(rng, 20000)])
mixture = Mixture(1, families=["gaussian", "laplace", Sech()], random_state=0).fit(X)
for name, family in zip(names, mixture.choice_[0]):
    print(f"{name}: {mixture.families_[family].name}")

# %%
# The densities that were chosen, on a logarithmic axis, where the tails differ most.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
for d, axis in enumerate(axes):
    family = mixture.families_[mixture.choice_[0, d]]
    location, scale = mixture.locations_[0, d], mixture.scales_[0, d]
    grid = np.linspace(-6, 6, 300)
    axis.hist(X[:, d], 80, range=(-6, 6), density=True, color="#b9c8d8")
    axis.plot(grid, np.exp(family.log_density((grid - location) / scale)) / scale, color="#c0392b")
    axis.set(title=f"{names[d]}: {family.name}", yscale="log", ylim=(1e-4, 1))
plt.show()

# %%
# Everything else works with the custom family, too: Fisher vectors use its scores and its Fisher
# information.

sets = [X[:50], X[50:80]]
print(FisherEncoder.from_fitted(mixture).transform(sets).round(3))
