"""
Choose the number of components by BIC
======================================

`bic` and `aic` work as in scikit-learn: lower is better. We compare Gaussian, Laplacian and hybrid
mixtures of one to eight components on scikit-learn's measurements of breast tumors, after a
decorrelating PCA.
"""

import matplotlib.pyplot as plt
import numpy as np
from fishermix import GaussianMixture, HybridMixture, LaplacianMixture
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

measurements = load_breast_cancer().data
X = make_pipeline(StandardScaler(), PCA(10, whiten=True)).fit_transform(measurements)

mixtures = {"GMM": GaussianMixture, "LMM": LaplacianMixture, "HGLMM": HybridMixture}
components = range(1, 9)
bic = {
    name: [Model(k, n_init=5, random_state=0).fit(X).bic(X) for k in components]
    for name, Model in mixtures.items()
}

# %%
# With one component the Laplacian fits better, because the data have heavy tails; several Gaussian components
# can imitate such tails. The hybrid takes the better family cell by cell and has the lowest BIC for almost
# every number of components.

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for name, values in bic.items():
    (line,) = axis.plot(components, values, marker="o", label=name)
    best = int(np.argmin(values))
    axis.plot(components[best], values[best], "o", ms=12, mfc="none", color=line.get_color())
axis.set(xlabel="components", ylabel="BIC (lower is better)")
axis.legend(title="circle: best")
plt.show()

for name, values in bic.items():
    print(f"{name:6} best with {components[int(np.argmin(values))]} components: BIC {min(values):,.0f}")
