"""GMM, LMM and HGLMM of the real word vectors: likelihoods, the share of Laplacian cells, and a figure.

python examples/fit_word2vec_mixtures.py [.cache/word2vec] [--figure hybrid.png] [--json FILE]

Needs `make word2vec`; the figure needs the extra `plots`.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from fishermix import GaussianMixture, HybridMixture, LaplacianMixture, WordVectors
from fishermix.progress import show_progress
from fishermix.text.whitening import Whitening

NAMES = {"GMM": GaussianMixture, "LMM": LaplacianMixture, "HGLMM": HybridMixture}


def draw(mixture, X: np.ndarray, path: Path) -> None:
    """Histograms of six dimensions of the largest component, the chosen density over each."""
    import matplotlib

    matplotlib.use("svg" if path.suffix == ".svg" else "agg")
    import matplotlib.pyplot as plt

    k = int(mixture.weights_.argmax())
    posterior = mixture.predict_proba(X)[:, k]
    laplacian = np.flatnonzero(mixture.choice_[k] == 1)[:3]
    gaussian = np.flatnonzero(mixture.choice_[k] == 0)[:3]
    figure, axes = plt.subplots(2, 3, figsize=(9, 5), constrained_layout=True)
    for axis, d in zip(axes.flat, [*gaussian, *laplacian]):
        family = mixture.families_[mixture.choice_[k, d]]
        location, scale = mixture.locations_[k, d], mixture.scales_[k, d]
        grid = np.linspace(location - 5 * scale, location + 5 * scale, 300)
        axis.hist(
            X[:, d], bins=60, range=(grid[0], grid[-1]), weights=posterior, density=True, color="#b9c8d8"
        )
        axis.plot(grid, np.exp(family.log_density((grid - location) / scale)) / scale, color="#c0392b")
        axis.set_title(f"dimension {d}: {family.name}", fontsize=10)
        axis.set_yticks([])
    figure.suptitle(f"word2vec after ICA, component {k} (weight {mixture.weights_[k]:.2f})")
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("vectors", nargs="?", default=".cache/word2vec")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    show_progress()
    words = WordVectors.load(arguments.vectors).vectors
    X = Whitening("ica").fit_transform(np.asarray(words, np.float32))
    print(f"{X.shape[0]} vectors of {X.shape[1]} dimensions, 30 components\n")
    print("| mixture | log likelihood of a vector | iterations | Laplacian cells |\n|---|---|---|---|")
    rows = []
    for name, kind in NAMES.items():
        begin = time.monotonic()
        mixture = kind(30, random_state=0).fit(X)
        seconds = {"mixture": round(time.monotonic() - begin, 1)}
        families = [family.name for family in mixture.families_]
        share = np.mean(mixture.choice_ == families.index("laplace")) if "laplace" in families else 0.0
        score = mixture.score(X)
        print(f"| {name} | {score:.2f} | {mixture.n_iter_} | {share:.1%} |", flush=True)
        numbers = {"log_likelihood": score, "iterations": mixture.n_iter_, "laplacian": 100 * float(share)}
        rows.append({"label": name, **numbers, "seconds": seconds})
    if arguments.json:
        from fishermix.saved import hash_values
        from fishermix_lab.record import describe_software, write_rows
        from fishermix_lab.stages import VERSIONS

        command = "python examples/fit_word2vec_mixtures.py .cache/word2vec"
        stages = {stage: VERSIONS[stage] for stage in ("whitening", "mixture")}
        inputs = hash_values(np.asarray(words))
        run = {"command": command, **describe_software(), "inputs": inputs, "stages": stages}
        write_rows(arguments.json, [{**row, **run} for row in rows])
    if arguments.figure:
        draw(mixture, X, arguments.figure)


if __name__ == "__main__":
    main()
