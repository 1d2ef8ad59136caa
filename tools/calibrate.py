"""Fit and check the probabilities of a model's scores; writes `calibration.json` into the model's folder.

    python tools/calibrate.py MODEL --features WORK/features --fit flickr8k:DIR \
        --check flickr8k:DIR --check folder:COCO [--plot reliability.png]

Fits on the "dev" photos of one data set and checks on the "test" photos of others: captions and single
words, in folders of 60 to 1,000 photos and of 1 to 7, half of them without a right photo. WORK/features keeps
the features of the photos.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from fishermix import ImageTextModel
from fishermix.datasets import open_dataset
from fishermix.experiments.calibration import (
    Trials,
    calibration_error,
    check_kinds,
    fit_calibration,
    measure_reliability,
    predict,
)
from fishermix.model.calibration import Calibration, save_calibration
from fishermix.vision.feature_cache import extract

TRIALS = 4000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--features", type=Path, required=True, help="folder of the feature cache")
    parser.add_argument("--fit", help="data set whose dev photos are fitted; omit to check only")
    parser.add_argument("--check", action="append", default=[], help="data set whose test photos are checked")
    parser.add_argument("--plot", type=Path, help="write the reliability diagrams as a picture")
    arguments = parser.parse_args()
    model = ImageTextModel.load(arguments.model)
    if arguments.fit:
        trials = make_trials(model, arguments.fit, "dev", arguments.features, seed=0)
        calibration = fit_calibration(list(trials.values()), model.key)
        save_calibration(arguments.model, calibration)
        print(f"Wrote {arguments.model / 'calibration.json'}: {calibration}")
    else:
        calibration = model.calibration or parser.error("the model has no calibration: add --fit")
    diagrams = {}
    for spec in arguments.check:
        trials = make_trials(model, spec, "test", arguments.features, seed=1)
        diagrams |= {f"{spec.partition(':')[0]}, {kind}": (calibration, one) for kind, one in trials.items()}
    for name, pair in diagrams.items():
        report(name, *pair)
    if arguments.plot:
        plot(diagrams, arguments.plot)


def make_trials(model: ImageTextModel, spec: str, split: str, features: Path, seed: int) -> dict[str, Trials]:
    dataset = open_dataset(spec).part(split)
    found = extract(dataset.image_paths, model.image_encoder, features).features
    points = model.csls_images(model.image_points(found))
    kinds = dict(check_kinds(model, dataset, points, TRIALS, seed))
    if split != "dev":
        return kinds | {"all": Trials.join(list(kinds.values()))}
    return {name: one.halve() if "small" in name else one for name, one in kinds.items()}


def report(name: str, calibration: Calibration, trials: Trials) -> None:
    probabilities, best = predict(calibration, trials), trials.is_best
    for title, rows in (("ten best photos", best | True), ("best photo", best)):
        bins = measure_reliability(probabilities[rows], trials.right[rows])
        error = calibration_error(bins)
        print(f"{name}, {title}: {rows.sum():,} photos, expected calibration error {error:.3f}")
        for one in bins:
            print(f"    {one.photos:6,} photos: probability {one.probability:.2f}, right {one.right:.2f}")


def plot(diagrams: dict[str, tuple[Calibration, Trials]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(diagrams), figsize=(3 * len(diagrams), 3.2), sharey=True)
    for axis, (name, (calibration, trials)) in zip(np.atleast_1d(axes), diagrams.items()):
        bins = measure_reliability(predict(calibration, trials), trials.right)
        axis.plot([0, 1], [0, 1], color="0.8")
        axis.plot([one.probability for one in bins], [one.right for one in bins], "o-", markersize=3)
        axis.set_title(f"{name}\nECE {calibration_error(bins):.3f}", fontsize=9)
        axis.set_xlabel("probability")
    np.atleast_1d(axes)[0].set_ylabel("share of right photos")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
