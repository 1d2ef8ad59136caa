"""
Choose the ridges of a canonical correlation analysis
=====================================================

Without a ridge, CCA of wide data finds correlations that only exist in the training set.
`RegularizedCCACV` compares ridges by cross-validation; `RegularizedCCA.path` solves a whole grid of ridges
for little more than the price of one.

Both sides here see 10 common factors, together with stronger factors of their own and noise, with
100 and 150 features and only 400 pairs.
"""

import matplotlib.pyplot as plt
import numpy as np
from fishermix import RegularizedCCA, RegularizedCCACV

rng = np.random.default_rng(0)
n, factors = 800, 10
common = rng.normal(size=(n, factors))


def observe(n_features):
    """The common factors, 20 strong factors that only this side has, and noise."""
    private = 4 * rng.normal(size=(n, 20)) @ rng.normal(size=(20, n_features))
    return common @ rng.normal(size=(factors, n_features)) + private + 4 * rng.normal(size=(n, n_features))


X, Y = observe(100), observe(150)
train, test = slice(0, 400), slice(400, n)

ridges = np.logspace(-5, 1, 7)
cca = RegularizedCCA(n_components=factors)
statistics = cca.statistics(X[train], Y[train], n_ridges=len(ridges) ** 2)
fitted, held_out = [], []
for ridge in ridges:
    (solution,) = cca.path(statistics, reg_x=[ridge], reg_y=[ridge])
    u, v = solution.transform(X[test], Y[test])
    fitted.append(solution.correlations_.mean())
    held_out.append(np.mean([np.corrcoef(u[:, k], v[:, k])[0, 1] for k in range(factors)]))

# %%
# In the training set the smallest ridge looks best. On held-out pairs the best ridge is much larger.

best = RegularizedCCACV(factors, ridges=ridges).fit(X[train], Y[train])
print(f"chosen by cross-validation: reg_x = {best.reg_x_:.3g}, reg_y = {best.reg_y_:.3g}")

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
axis.plot(ridges, fitted, marker="o", label="reported by the fit")
axis.plot(ridges, held_out, marker="o", label="held-out pairs")
axis.axvline(best.reg_y_, color="black", ls=":", label="chosen by cross-validation")
axis.set(
    xscale="log",
    xlabel="ridge (share of the largest eigenvalue)",
    ylabel="mean canonical correlation",
    ylim=(0, 1.02),
)
axis.legend()
plt.show()
