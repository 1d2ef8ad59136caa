"""
Fit a mixture to a stream
=========================

`partial_fit` takes batches of a stream. Each is one step of incremental EM, so a row is visited once and
need not be kept.
"""

import matplotlib.pyplot as plt
import numpy as np
from fishermix import HybridMixture

rng = np.random.default_rng(0)
centers = np.array([[-6, 0], [0, 5], [6, 0]])
X = centers[rng.integers(3, size=9000)] + rng.laplace(size=(9000, 2))
reference = HybridMixture(3, n_init=3, random_state=0).fit(X).score(X)

stream = HybridMixture(3, random_state=0)
seen, scores = [], []
for start in range(0, len(X), 100):
    stream.partial_fit(X[start : start + 100])
    seen.append(start + 100)
    scores.append(stream.score(X))

# %%
# The first batch sets the start; the others bring the mixture near that of all rows.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(seen, scores, marker="o", label="partial_fit")
left.axhline(reference, color="black", ls=":", label="fit of all rows")
left.set(xlabel="rows seen", ylabel="mean log likelihood of all rows")
left.legend()
right.scatter(*X[rng.permutation(len(X))[:1500]].T, s=4, color="#b9c8d8")
right.scatter(*stream.locations_.T, marker="x", s=120, color="#c0392b", label="components after the stream")
right.legend()
plt.show()
