"""The effect of each choice in the recipe: one change at a time, measured on the validation images.

python tools/ablations.py flickr8k:DIR [--work DIR] [--vectors DIR] [--also NAME=VECTORS] [--json FILE]

Mixtures of ten components keep each change under a minute. Only the order of the results matters. The test
images are never used.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fishermix.errors import FishermixError
from fishermix.measures.ranks import Figures
from fishermix.progress import show_progress
from fishermix.text.word_vectors import WordVectors
from fishermix_photos.lab.datasets import Dataset, open_dataset
from fishermix_photos.lab.recipe import RECIPES
from fishermix_photos.lab.record import describe_run
from fishermix_photos.lab.stages import VERSIONS
from fishermix_photos.lab.training import evaluate_model, train_model

BASE = RECIPES["best"].with_(
    variant="hglmm", mixture_components=10, view="squeeze", reg_y=(0.002, 0.005), transformer=None
)
TWO_NETWORKS = ("efficientnet-lite2:depths", "resnet50:depths")
CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "with the sentence transformer": {"transformer": "all-MiniLM-L6-v2"},
    "the cosine alone": {"csls_neighbors": 0},
    "1 neighbor": {"csls_neighbors": 1},
    "50 neighbors": {"csls_neighbors": 50},
    "banks of 1,000": {"csls_bank_size": 1000, "csls_neighbors": 5},
    "mean of the words": {"variant": "mean"},
    "GMM": {"variant": "gmm"},
    "LMM": {"variant": "lmm"},
    "GMM and HGLMM side by side": {"variant": "gmm+hglmm"},
    "logistic mixture": {"variant": "logistic"},
    "Gaussian, Laplacian, logistic or Student's t": {"variant": "four families"},
    "5 components": {"mixture_components": 5},
    "20 components": {"mixture_components": 20},
    "PCA instead of ICA": {"whitening": "pca"},
    "no whitening": {"whitening": "none"},
    "length 1 before ICA": {"l2_before": True},
    "length 1 after ICA": {"l2_after": True},
    "image vectors as they are": {"image_power": 1.0, "image_l2": False},
    "features of one depth": {"encoders": ("efficientnet-lite2",)},
    "two views (mirror image)": {"view": "flip"},
    "with ResNet-50": {"encoders": ("efficientnet-lite2:depths", "resnet50")},
    "ResNet-50 alone": {"encoders": ("resnet50",)},
    "with ResNet-50, three depths, two views": {"encoders": TWO_NETWORKS, "view": "flip"},
    "no scaling by correlations": {"correlation_powers": (0.0,)},
    "scaled by correlations, power 1": {"correlation_powers": (1.0,)},
    "scaled by correlations, power 4": {"correlation_powers": (4.0,)},
    "128 dimensions": {"n_components": 128},
    "1,024 dimensions": {"n_components": 1024},
    "one ridge for both sides (0.005)": {"reg_x": (0.005,), "reg_y": (0.005,)},
}
SENTENCE_VIEWS: dict[str, dict[str, Any]] = {
    "no transformer": {},
    "all-MiniLM-L6-v2": {"transformer": "all-MiniLM-L6-v2"},
    "all-MiniLM-L6-v2, ResNet-50": {"transformer": "all-MiniLM-L6-v2", "encoders": TWO_NETWORKS},
    "gte-small": {"transformer": "gte-small"},  # tools/add_gte_small.py
    "both": {"transformer": "minilm+gte"},
    "both, ResNet-50": {"transformer": "minilm+gte", "encoders": TWO_NETWORKS},
    "both, weight 1": {"transformer": "minilm+gte", "transformer_weight": 1.0},
    "both, weight 1.4": {"transformer": "minilm+gte", "transformer_weight": 1.4},
    "both, weight 1, ResNet-50": {
        "transformer": "minilm+gte",
        "transformer_weight": 1.0,
        "encoders": TWO_NETWORKS,
    },
}
TWO_VIEWS = {"variant": "gmm", "view": "flip", "reg_y": (0.001, 0.003)}
CHANGES |= {f"GMM, two views, {name}": TWO_VIEWS | change for name, change in SENTENCE_VIEWS.items()}


def ablations(dataset: Dataset, vectors: dict[str, WordVectors], work: str) -> Iterator[tuple[str, Figures]]:
    """(change, figures on the validation images) of each change; all but the last use the first vectors."""
    (_, first), *others = vectors.items()
    dev = dataset.part("dev")
    for name, change in CHANGES.items():
        try:
            model = train_model(dataset, first, BASE.with_(**change), work)
        except FishermixError as error:  # a network or a transformer that is not installed
            print(f"{name}: {error}", file=sys.stderr)
            continue
        yield name, evaluate_model(model, dev, f"{work}/features")
    for name, other in others:
        model = train_model(dataset, other, BASE, work)
        yield name, evaluate_model(model, dev, f"{work}/features")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("data", help="a data set with train and dev images, such as flickr8k:DIR")
    parser.add_argument("--work", default=".cache/reproduce", help="folder for finished stages and features")
    parser.add_argument("--vectors", default=".cache/word2vec-extended", help="word vectors for all changes")
    parser.add_argument("--also", action="append", default=[], help="NAME=FOLDER: other word vectors")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    show_progress()
    vectors = {"": WordVectors.load(arguments.vectors)}
    for name, _, folder in (also.partition("=") for also in arguments.also):
        vectors[name] = WordVectors.load(folder)
    run = describe_run("python tools/ablations.py", [arguments.data], also=arguments.also)
    rows: list[dict[str, Any]] = []
    print("| change | search r@1 r@5 r@10 | annotation r@1 r@5 r@10 | sum |\n|---|---|---|---|")
    for name, found in ablations(open_dataset(arguments.data), vectors, arguments.work):
        recalls = [[found[task][k] for k in ("r@1", "r@5", "r@10")] for task in ("search", "annotation")]
        cells = [" ".join(f"{value:.1f}" for value in row) for row in recalls]
        versions = {stage: VERSIONS[stage] for stage in BASE.with_(**CHANGES.get(name, {})).stages}
        rows.append({"label": name, "figures": found, "stages": versions})
        if arguments.json:
            arguments.json.write_text(json.dumps({**run, "split": "dev", "rows": rows}, indent=1) + "\n")
        print(f"| {name} | {' | '.join(cells)} | {sum(map(sum, recalls)):.1f} |", flush=True)


if __name__ == "__main__":
    main()
