"""The paper's tables on real data: every variant, with the paper's splits, repeats and validation."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from fishermix.errors import FishermixError
from fishermix.measures.ranks import Figures, figures
from fishermix.storage import Name, Number, Text, dump, parse_json, write_atomically
from fishermix.text.word_vectors import WordVectors

from fishermix_photos.lab.datasets import Dataset
from fishermix_photos.lab.recipe import VARIANTS, Recipe
from fishermix_photos.lab.stages import Stages
from fishermix_photos.lab.training import image_features, rank_answers, train_model
from fishermix_photos.model import ImageTextModel


@dataclass
class Result:
    """The figures of one variant, averaged over the repeats.

    variant : a key of `VARIANTS`
    laplacian : share of the (component, dimension) cells of the hybrid mixture that chose the Laplacian
    """

    variant: Name
    encoder: Text
    figures: dict[Name, dict[Name, Number]]
    chosen: list[dict[Name, Number]]
    laplacian: Number | None = None
    seconds: dict[Name, Number] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise FishermixError(f"There is no variant '{self.variant}'.")

    @property
    def label(self) -> str:
        """The name of the variant in the paper's tables."""
        return VARIANTS[self.variant].label

    def as_json(self) -> dict[str, Any]:
        values = asdict(self)
        return values.pop("figures") | values


@dataclass(frozen=True)
class Experiment:
    """What the variants of a table have in common.

    repeats : the number of random splits; None is the paper's number
    test_images : rank among this many random test images, drawn with the repeat's number (COCO's 1,000)
    """

    dataset: Dataset
    vectors: WordVectors
    repeats: int | None = None
    test_images: int | None = None

    @property
    def n_repeats(self) -> int:
        return min(self.repeats or self.dataset.repeats, self.dataset.repeats)

    def run(self, recipes: Sequence[Recipe], work: str | os.PathLike) -> Iterator[Result]:
        """Yield the result of each variant; results that were finished before are read from `work`."""
        stages = Stages(work)
        self._check_splits()
        with stages.hold():
            for recipe in recipes:
                path = stages.folder / f"result-{self.digest(recipe)}.json"
                if path.is_file():
                    yield _load_result(path)
                    continue
                result = self._measure(recipe, stages)
                write_atomically(path, json.dumps(dump(result)).encode())
                yield result

    def _check_splits(self) -> None:
        name, counts = self.dataset.name, self.dataset.paper_splits(0).counts()
        for split in ("train", "dev", "test"):
            if not counts.get(split):
                raise FishermixError(f"{name} has no {split} images. A table needs train, dev and test.")
        if self.test_images is not None and not 1 <= self.test_images <= counts["test"]:
            raise FishermixError(
                f"{name} has {counts['test']} test images, so {self.test_images} cannot be drawn."
            )

    def _measure(self, recipe: Recipe, stages: Stages) -> Result:
        stages.seconds.clear()
        runs = [self._rank_split(repeat, recipe, stages) for repeat in range(self.n_repeats)]
        return Result(
            variant=recipe.variant,
            encoder="+".join(recipe.encoders),
            figures=_mean_figures([figures(ranks) for ranks, _ in runs]),
            chosen=[{name: model.report[name] for name in ("reg_x", "reg_y", "scale")} for _, model in runs],
            laplacian=_laplacian_share(runs[0][1]),
            seconds={name: round(value, 1) for name, value in stages.seconds.items()},
        )

    def _rank_split(
        self, repeat: int, recipe: Recipe, stages: Stages
    ) -> tuple[dict[str, np.ndarray], ImageTextModel]:
        """Train on one split and rank its test images."""
        dataset = self.dataset.paper_splits(repeat)
        model = train_model(dataset, self.vectors, recipe, stages)
        features = stages.folder / "features"
        with stages.clock("image features"):
            test, _ = image_features(dataset.part("test"), model.image_encoder, features)
        with stages.clock("test"):
            test = test.sample("test", self.test_images, repeat) if self.test_images else test
            return rank_answers(model, test, features), model

    def digest(self, recipe: Recipe) -> str:
        """The hash of everything that determines the result of a variant."""
        inputs = [asdict(recipe), self.n_repeats, self.test_images]
        digest = hashlib.sha256(json.dumps(inputs).encode())
        digest.update(np.ascontiguousarray(self.vectors.vectors).tobytes())
        dataset = self.dataset
        for names in (self.vectors.words, dataset.image_names, dataset.sentences, dataset.splits.tolist()):
            digest.update("\0".join(names).encode())
        for path in dataset.image_paths:
            digest.update(f"{path.stat().st_size if path.is_file() else 0} ".encode())
        return digest.hexdigest()[:16]


def _load_result(path: Path) -> Result:
    advice = "The file is damaged. Delete it to measure this variant again."
    return parse_json(path.read_bytes(), Result, path, advice)


def _mean_figures(found: list[Figures]) -> Figures:
    return {
        task: {measure: float(np.mean([one[task][measure] for one in found])) for measure in measures}
        for task, measures in found[0].items()
    }


def _laplacian_share(model: ImageTextModel) -> float | None:
    for mixture in model.sentence_encoder.mixtures:
        names = [family.name for family in mixture.families_]
        if "laplace" in names and len(names) > 1:
            return float(np.mean(mixture.choice_ == names.index("laplace")))
    return None
