"""The paper's tables on real data: every row, with the paper's splits, repeats and validation."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fishermix.datasets import Dataset
from fishermix.errors import FishermixError
from fishermix.evaluation.tasks import Figures, figures, task_ranks
from fishermix.model.model import ImageTextModel
from fishermix.model.recipe import Recipe
from fishermix.model.training import Stages, image_features, joint_space, sentence_encoder
from fishermix.storage import write_atomically
from fishermix.text.vectors import WordVectors
from fishermix.vision.encoders import open_encoders

HIGHEST_RANK_DRAWN = 1000


@dataclass
class Result:
    """One row of the table: means over the repeats, and what the page draws.

    recall_curve : for each task, the share of queries (in percent) whose rank is at most 1, 2, 3, …
    laplacian : share of the (component, dimension) cells of the hybrid mixture that chose the Laplacian
    """

    row: str
    encoder: str
    figures: Figures
    chosen: list[dict[str, float]]
    recall_curve: dict[str, list[float]] = field(default_factory=dict)
    laplacian: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "row": self.row,
            "encoder": self.encoder,
            **self.figures,
            "chosen": self.chosen,
            "laplacian": self.laplacian,
            "seconds": self.seconds,
        }


def reproduce(
    dataset: Dataset,
    vectors: WordVectors,
    recipe: Recipe,
    rows: Sequence[str],
    repeats: int | None,
    work: str | os.PathLike,
    test_images: int | None = None,
) -> Iterator[Result]:
    """Yield the result of each row; a row that was finished before comes from the `work` folder.

    test_images : rank among so many of the test images, drawn with the repeat's number (COCO's 1,000)
    """
    stages = Stages(work)
    repeats = min(repeats or dataset.repeats, dataset.repeats)
    _expect_splits(dataset.paper_splits(0), test_images)
    for row in rows:
        of_row = recipe.with_(row=row)
        path = stages.folder / f"result-{_digest(dataset, vectors, of_row, repeats, test_images)}.json"
        if path.is_file():
            yield _kept_result(path)
            continue
        stages.seconds.clear()
        runs = [
            _run(dataset.paper_splits(repeat), repeat, vectors, of_row, stages, test_images)
            for repeat in range(repeats)
        ]
        result = Result(
            row=row,
            encoder="+".join(recipe.encoders),
            figures=_mean_figures([figures(ranks) for ranks, _ in runs]),
            chosen=[
                {"reg_x": model.cca.reg_x, "reg_y": model.cca.reg_y, "scale": model.cca.scale}
                for _, model in runs
            ],
            recall_curve={task: _curve([ranks[task] for ranks, _ in runs]) for task in runs[0][0]},
            laplacian=_share_of_laplacian(runs[0][1]),
            seconds={name: round(value, 1) for name, value in stages.seconds.items()},
        )
        write_atomically(path, json.dumps(vars(result)).encode())
        yield result


def _expect_splits(dataset: Dataset, test_images: int | None) -> None:
    counts = dataset.counts()
    for split in ("train", "dev", "test"):
        if not counts.get(split):
            raise FishermixError(f"{dataset.name} has no {split} images: a table needs train, dev and test")
    if test_images is not None and not 1 <= test_images <= counts["test"]:
        raise FishermixError(f"{dataset.name} has {counts['test']} test images, not {test_images} to draw")


def _kept_result(path: Path) -> Result:
    try:
        return Result(**json.loads(path.read_text("utf8")))
    except (ValueError, TypeError) as error:
        raise FishermixError(
            f"{path} is damaged ({error}): delete it, and its row is measured anew"
        ) from error


def _run(
    dataset: Dataset,
    repeat: int,
    vectors: WordVectors,
    recipe: Recipe,
    stages: Stages,
    test_images: int | None,
) -> tuple[dict[str, np.ndarray], ImageTextModel]:
    model = ImageTextModel(vectors, recipe)
    model.sentence_encoder = sentence_encoder(vectors, recipe, stages)
    model.image_encoder = open_encoders(recipe.encoders, recipe.view)
    with stages.timed("image features"):
        dataset, features = image_features(dataset, model.image_encoder, stages.folder / "features")
    model.cca, model.hubness = joint_space(
        dataset, features, model.sentence_encoder, model.image_encoder, recipe, stages
    )
    with stages.timed("test"):
        test = dataset.sample("test", test_images, repeat) if test_images else dataset.part("test")
        of_name = {name: row for row, name in enumerate(dataset.image_names)}
        images = model.image_points(features[[of_name[name] for name in test.image_names]])
        sentences = model.encode_text(test.sentences)
        return task_ranks(images, sentences, test.image_of, model.hubness), model


def _digest(
    dataset: Dataset, vectors: WordVectors, recipe: Recipe, repeats: int, test_images: int | None
) -> str:
    digest = hashlib.sha256(json.dumps([recipe.as_json(), repeats, test_images]).encode())
    digest.update(np.ascontiguousarray(vectors.vectors).tobytes())
    for part in (vectors.words, dataset.image_names, dataset.sentences, dataset.splits.tolist()):
        digest.update("\0".join(part).encode())
    for path in dataset.image_paths:
        digest.update(f"{path.stat().st_size if path.is_file() else 0} ".encode())
    return digest.hexdigest()[:16]


def _mean_figures(found: list[Figures]) -> Figures:
    return {
        task: {measure: float(np.mean([one[task][measure] for one in found])) for measure in measures}
        for task, measures in found[0].items()
    }


def _curve(ranks: list[np.ndarray]) -> list[float]:
    together = np.concatenate(ranks)
    counts = np.bincount(np.minimum(together, HIGHEST_RANK_DRAWN + 1), minlength=HIGHEST_RANK_DRAWN + 2)
    return np.round(100 * np.cumsum(counts)[1:-1] / len(together), 2).tolist()


def _share_of_laplacian(model: ImageTextModel) -> float | None:
    for mixture in model.sentence_encoder.mixtures:
        names = [family.name for family in mixture.families_]
        if "laplace" in names and len(names) > 1:
            return float(np.mean(mixture.choice_ == names.index("laplace")))
    return None


def write_json(results: Sequence[Result], path: Path) -> None:
    document = {"rows": [result.as_json() for result in results]}
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())
