"""
Fit a mixture to a stream
=========================

`partial_fit` takes batches of a stream. It remembers a uniform sample of the rows so far, so it recovers
from a first batch that shows only part of the data, and from a sorted stream.
"""

import matplotlib.pyplot as plt
import numpy as np
from fishermix import HybridMixture

rng = np.random.default_rng(0)
centers = np.array([[-6, 0], [0, 5], [6, 0]])
clusters = [center + rng.laplace(size=(3000, 2)) for center in centers]
X = np.concatenate(clusters)  # sorted: one cluster after the other
reference = HybridMixture(3, n_init=3, random_state=0).fit(X).score(X)

stream = HybridMixture(3, random_state=0)
seen, scores = [], []
for start in range(0, len(X), 500):
    stream.partial_fit(X[start : start + 500])
    seen.append(start + 500)
    scores.append(stream.score(X))

# %%
# After each third of the stream a new cluster appears. The mixture needs some batches to find it.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(seen, scores, marker="o", label="partial_fit")
left.axhline(reference, color="black", ls=":", label="fit of all rows")
left.set(xlabel="rows seen", ylabel="mean log likelihood of all rows")
left.legend()
right.scatter(*X[rng.permutation(len(X))[:1500]].T, s=4, color="#b9c8d8")
right.scatter(*stream.locations_.T, marker="x", s=120, color="#c0392b", label="components after the stream")
right.legend()
plt.show()
