"""The paper's tables on real data: every variant, with the paper's splits, repeats and validation."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from fishermix.joint.ranks import Comparison, Figures, compare_recalls, figures
from fishermix.saved import Count, Name, Number, Text, dump, hash_values, load_json, write_atomically
from fishermix.text.word_vectors import WordVectors
from fishermix_photos.model.image_encoder import ImageEncoder
from fishermix_photos.model.image_vectors import DEFAULT_VIEW
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.transformer import SentenceTransformer

from fishermix_lab.datasets.readers import SPLITS, Dataset
from fishermix_lab.recipe import VARIANTS, Recipe
from fishermix_lab.record import describe_software, hash_dataset, hide_folders
from fishermix_lab.stages import VERSIONS, Stages
from fishermix_lab.training import describe_families, image_features, rank_answers, train_model


@dataclass
class Result:
    """The figures of one variant, averaged over the repeats and the seeds.

    variant : a key of `VARIANTS`, or names of families
    changes : what differs from the recipe, as in --set
    software : the version, the commit and the machine that measured them
    inputs : hash of the data, word vectors, networks and parameters
    stages : the versions of the stages that computed the figures
    seeds : the seeds
    by_seed : the figures of each seed, if there are several
    deviation : standard deviations of the figures over the seeds
    ranks : for each seed and task, the ranks of the queries of each test image; empty if there are repeats
    """

    variant: Name
    encoder: Text
    figures: dict[Name, dict[Name, Number]]
    chosen: list[dict[Name, Number]]
    seconds: dict[Name, Number] = field(default_factory=dict)
    inputs: Text = ""
    stages: dict[Name, Count] = field(default_factory=dict)
    software: dict[Name, Text] = field(default_factory=dict)
    changes: list[Text] = field(default_factory=list)
    seeds: list[Count] = field(default_factory=list)
    by_seed: list[dict[Name, dict[Name, Number]]] = field(default_factory=list)
    deviation: dict[Name, dict[Name, Number]] = field(default_factory=dict)
    ranks: list[dict[Name, list[list[Count]]]] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The name of the variant in the paper's tables, and what was changed."""
        name = VARIANTS[self.variant].label if self.variant in VARIANTS else self.variant
        return ", ".join([name, *self.changes])

    def as_row(self, command: str) -> dict[str, Any]:
        """A row of a file of results: all but the ranks."""
        values = asdict(self)
        software = values.pop("software")
        del values["ranks"], values["changes"]
        return {"label": self.label, "command": command, **software, **values}


@dataclass(frozen=True)
class Experiment:
    """What the variants of a table have in common.

    repeats : the number of random splits; None is the paper's number
    test_images : rank among this many random test images, drawn with the repeat's number (COCO's 1,000)
    seeds : the number of seeds, from that of the recipe on
    changes : what the recipes have in common that a table has to say
    """

    dataset: Dataset
    vectors: WordVectors
    repeats: int | None = None
    test_images: int | None = None
    seeds: int = 1
    changes: Sequence[str] = ()

    @property
    def n_repeats(self) -> int:
        return min(self.repeats or self.dataset.repeats, self.dataset.repeats)

    def run(self, recipes: Sequence[Recipe], work: str | os.PathLike) -> Iterator[Result]:
        """Yield the result of each variant; what was measured before is read from `work`."""
        stages = Stages(work)
        self._check_splits()
        with stages.hold():
            for recipe in recipes:
                seeds = range(recipe.seed, recipe.seed + self.seeds)
                found = [self._load_or_measure(recipe.with_(seed=seed), stages) for seed in seeds]
                yield replace(
                    _average_seeds(found),
                    variant=recipe.variant,
                    encoder=_name_encoders(recipe),
                    changes=[hide_folders(change) for change in self.changes],
                )

    def _check_splits(self) -> None:
        """Raise before the work begins."""
        first = self.dataset.paper_splits(0)
        for split in SPLITS:
            first.part(split)
        if self.test_images is not None:
            first.sample("test", self.test_images)

    def _load_or_measure(self, recipe: Recipe, stages: Stages) -> Result:
        """The result of one seed."""
        inputs = self.hash_inputs(recipe)
        versions = {stage: VERSIONS[stage] for stage in recipe.stages}
        path = stages.folder / f"result-{hash_values(inputs, versions)[:16]}.json"
        if path.is_file():
            return _load_result(path)
        result = replace(self._measure(recipe, stages), inputs=inputs, stages=versions, seeds=[recipe.seed])
        write_atomically(path, json.dumps(dump(result)).encode())
        return result

    def _measure(self, recipe: Recipe, stages: Stages) -> Result:
        stages.seconds.clear()
        runs = [self._rank_split(repeat, recipe, stages) for repeat in range(self.n_repeats)]
        ranks = [_group_by_image(*run[:2]) for run in runs] if len(runs) == 1 else []
        return Result(
            variant=recipe.variant,
            encoder=_name_encoders(recipe),
            figures=_combine([figures(run[0]) for run in runs], np.mean),
            chosen=[{name: run[2].report[name] for name in ("reg_x", "reg_y", "scale")} for run in runs],
            seconds={name: round(value, 1) for name, value in stages.seconds.items()},
            software=describe_software(),
            ranks=ranks,
        )

    def _rank_split(
        self, repeat: int, recipe: Recipe, stages: Stages
    ) -> tuple[dict[str, np.ndarray], np.ndarray, ImageTextModel]:
        """Train on one split; the ranks of its test images, the image of each sentence, and the model."""
        dataset = self.dataset.paper_splits(repeat)
        model = train_model(dataset, self.vectors, recipe, stages)
        features = stages.folder / "features"
        with stages.clock("image features"):
            test, _ = image_features(dataset.part("test"), model.image_encoder, features)
        with stages.clock("test"):
            test = test.sample("test", self.test_images, repeat) if self.test_images else test
            return rank_answers(model, test, features), test.image_of, model

    @cached_property
    def dataset_hash(self) -> str:
        return hash_dataset(self.dataset)

    def hash_inputs(self, recipe: Recipe) -> str:
        """The hash of all that determines the result of a variant, except the versions of the stages."""
        encoder = ImageEncoder(recipe.encoders, view=recipe.view or DEFAULT_VIEW)
        named = {
            "variant": None,
            "families": [describe_families(mixture) for mixture in recipe.mixtures],
            "encoders": encoder.key,
            "transformer": recipe.transformer and SentenceTransformer.find(recipe.transformer).key,
        }
        return hash_values(
            recipe.describe() | named,
            [self.n_repeats, self.test_images],
            [list(self.vectors.words), self.vectors.vectors],
            self.dataset_hash,
        )


def compare_variants(results: Sequence[Result]) -> dict[str, dict[str, Comparison]]:
    """For each pair of variants, the difference of their recalls, by a bootstrap over the test images."""
    recalls = {"r@1": (1,), "r@1+5+10": (1, 5, 10)}
    pairs = [pair for pair in combinations(results, 2) if pair[0].ranks and pair[1].ranks]
    return {
        f"{second.label} - {first.label}": {
            f"{task} {name}": _compare(second, first, task, at)
            for task in ("search", "annotation")
            for name, at in recalls.items()
        }
        for first, second in pairs
    }


def _compare(first: Result, second: Result, task: str, at: tuple[int, ...]) -> Comparison:
    image_of = np.repeat(np.arange(len(first.ranks[0][task])), [len(of) for of in first.ranks[0][task]])
    ours, theirs = (
        np.array([np.concatenate(of_seed[task]) for of_seed in result.ranks]) for result in (first, second)
    )
    return compare_recalls(ours, theirs, image_of, at=at)


def _group_by_image(ranks: dict[str, np.ndarray], image_of: np.ndarray) -> dict[str, list[list[int]]]:
    """The ranks of each image's sentences, and of the images that have any."""
    of_sentences = [ranks["search"][image_of == image].tolist() for image in np.unique(image_of)]
    return {"search": of_sentences, "annotation": ranks["annotation"][:, None].tolist()}


def _average_seeds(found: list[Result]) -> Result:
    """One result of all seeds: means and standard deviations of the figures, sums of the seconds."""
    if len(found) == 1:
        return found[0]
    names = dict.fromkeys(name for result in found for name in result.seconds)
    software = {
        name: ", ".join(dict.fromkeys(result.software.get(name, "unknown") for result in found))
        for name in found[0].software
    }
    return replace(
        found[0],
        software=software,  # of all seeds: they may have been measured on different days
        figures=_combine([result.figures for result in found], np.mean),
        by_seed=[result.figures for result in found],
        deviation=_combine([result.figures for result in found], lambda values: np.std(values, ddof=1)),
        chosen=[choice for result in found for choice in result.chosen],
        seconds={name: round(sum(result.seconds.get(name, 0) for result in found), 1) for name in names},
        inputs=hash_values([result.inputs for result in found]),
        seeds=[seed for result in found for seed in result.seeds],
        ranks=[ranks for result in found for ranks in result.ranks],
    )


def _name_encoders(recipe: Recipe) -> str:
    return "+".join(map(hide_folders, recipe.encoders))


def _load_result(path: Path) -> Result:
    advice = "The file is damaged. Delete it to measure this variant again."
    return load_json(path, Result, advice)


def _combine(found: list[Figures], combine: Callable[[list[float]], Any]) -> Figures:
    return {
        task: {measure: float(combine([one[task][measure] for one in found])) for measure in measures}
        for task, measures in found[0].items()
    }
