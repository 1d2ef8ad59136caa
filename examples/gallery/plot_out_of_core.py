"""
Fit a mixture to a file larger than memory
==========================================

`fit` takes arrays, memory-mapped files, paths of `.npy` and `.safetensors` files, and any
object that yields blocks of rows. Rows in a file are read block by block, and the result has the same
bits as a fit in memory.
"""

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from fishermix import HybridMixture

rng = np.random.default_rng(0)
X = rng.laplace(size=(200_000, 32)).astype(np.float32)
X[::2] += 3
path = Path(tempfile.mkdtemp()) / "rows.npy"
np.save(path, X)


def fit(rows):
    start = time.perf_counter()
    mixture = HybridMixture(4, max_iter=10, tol=0, random_state=0).fit(rows)
    return mixture, time.perf_counter() - start


fit(X[:5000])  # compiles
in_memory, memory_seconds = fit(X)
from_file, file_seconds = fit(path)
same = np.array_equal(in_memory.locations_, from_file.locations_)
print(f"the same bits: {same and np.array_equal(in_memory.scales_, from_file.scales_)}")

# %%
# Reading the blocks again in every pass costs little next to the arithmetic.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.bar(["in memory", "from the file"], [memory_seconds, file_seconds], color=["#4c72b0", "#c0392b"])
left.set(ylabel="seconds for 10 iterations", title=f"{len(X):,} rows of {X.shape[1]} dimensions")
right.plot(in_memory.lower_bounds_, marker="o", label="in memory")
right.plot(from_file.lower_bounds_, marker="x", ls="--", label="from the file")
right.set(xlabel="iteration", ylabel="mean log likelihood of a row")
right.legend()
plt.show()
