"""Training the whole line, stage by stage; what is finished is kept and not done again."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fishermix import progress
from fishermix.cca import CovarianceSums, RegularizedCCA
from fishermix.datasets import Dataset
from fishermix.errors import FishermixError
from fishermix.evaluation.tasks import recall_sum
from fishermix.mixture import Mixture
from fishermix.model.hubness import HubnessCorrection
from fishermix.model.model import encoder_parts, prepare_features, unit_rows
from fishermix.model.recipe import Recipe
from fishermix.storage import load_folder, read_kind, save_folder
from fishermix.text.encoder import SentenceEncoder
from fishermix.text.vectors import WordVectors
from fishermix.text.whitening import Whitening
from fishermix.vision.encoders import open_encoders
from fishermix.vision.feature_cache import extract

if TYPE_CHECKING:
    from distributed import Client

    from fishermix.model.model import ImageTextModel

HELD_OUT = 0.1


class Stages:
    """A folder of finished stages, each under the hash of all it was made from, and the seconds spent."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FishermixError(f"the work folder {folder} cannot be made ({error.strerror})") from error
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start
        if progress._shown:
            print(f"{name}: {self.seconds[name]:.1f} s", file=sys.stderr)

    def kept(
        self,
        name: str,
        made_from: Any,
        make: Callable[[], Any],
        save: Callable[[Any, Path], None],
        load: Callable[[Path], Any],
    ):
        """The result of a stage: loaded if it was finished before, else made and kept."""
        digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]
        folder = self.folder / f"{name.replace(' ', '-')}-{digest}"
        with self.timed(name):
            if read_kind(folder) is not None:
                return load(folder)
            result = make()
            save(result, folder)
            return result


@contextmanager
def stages_in(work: str | os.PathLike | None) -> Iterator[Stages]:
    """Stages in this folder, or in a temporary one."""
    if work is not None:
        yield Stages(work)
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Stages(folder)


def train(
    model: ImageTextModel,
    dataset: Dataset,
    work: str | os.PathLike | None = None,
    client: Client | None = None,
) -> ImageTextModel:
    """Fit `model` as its recipe says, on the Dask cluster of `client` if one is given; see
    `ImageTextModel.fit`."""
    with stages_in(work) as stages:
        vectors = model.vectors
        if vectors is None:
            raise FishermixError(
                "training needs word vectors: ImageTextModel(vectors=FOLDER) (`make word2vec`)"
            )
        if not isinstance(vectors, WordVectors):
            vectors = WordVectors.load(vectors)
        dataset = with_dev(dataset, model.recipe.seed)
        dataset = dataset.select(np.flatnonzero(np.isin(dataset.splits, ("train", "dev"))))
        model.sentence_encoder = sentence_encoder(vectors, model.recipe, stages, client)
        model.image_encoder = open_encoders(model.recipe.encoders, model.recipe.view)
        with stages.timed("image features"):
            dataset, features = image_features(
                dataset, model.image_encoder, stages.folder / "features", client
            )
        model.cca, model.hubness = joint_space(
            dataset, features, model.sentence_encoder, model.image_encoder, model.recipe, stages, client
        )
        model.report = {
            "data": dataset.name,
            "images": dataset.counts(),
            "reg_x": model.cca.reg_x,
            "reg_y": model.cca.reg_y,
            "scale": model.cca.scale,
            "seconds": {name: round(value, 1) for name, value in stages.seconds.items()},
        }
        return model


def with_dev(dataset: Dataset, seed: int) -> Dataset:
    """The data set, with a tenth of the training images held out as "dev" if it has none."""
    if (dataset.splits == "dev").any():
        if (there := int((dataset.splits == "train").sum())) < 2:
            raise FishermixError(f"{dataset.name} has {there} training images: training needs at least two")
        return dataset
    splits = dataset.splits.copy()
    rows = np.flatnonzero(splits == "train")
    if not len(rows):
        rows = np.flatnonzero(splits == "")
        splits[rows] = "train"
    if len(rows) < 10:
        raise FishermixError(f"{dataset.name} has {len(rows)} training images: training needs at least ten")
    held_out = np.random.default_rng(seed).permutation(rows)[: max(1, int(len(rows) * HELD_OUT))]
    splits[held_out] = "dev"
    return replace(dataset, splits=splits)


def sentence_encoder(
    vectors: WordVectors, recipe: Recipe, stages: Stages, client: Client | None = None
) -> SentenceEncoder:
    """Whitening and mixtures learned on the corpus of word vectors, never on captions."""
    corpus = np.asarray(vectors.vectors[: recipe.corpus_words], np.float32)
    corpus_hash = hashlib.sha256(np.ascontiguousarray(corpus).tobytes()).hexdigest()
    how = [corpus_hash, recipe.whitening, recipe.l2_before, recipe.l2_after, recipe.seed]
    whitening = stages.kept(
        "whitening",
        how,
        lambda: Whitening(recipe.whitening, recipe.l2_before, recipe.l2_after, random_state=recipe.seed).fit(
            corpus
        ),
        lambda made, folder: save_folder(folder, "whitening", 1, {}, made.to_tensors()),
        lambda folder: Whitening.from_tensors(load_folder(folder, "whitening", 1)[1]),
    )
    whitened = whitening.transform(corpus).astype(np.float32) if recipe.families else corpus
    rows: Any = whitened
    if client is not None and recipe.families:
        from fishermix.distributed.mixtures import ClusterSource

        rows = ClusterSource(whitened, client)
    mixtures = [_mixture(rows, how, families, recipe, stages) for families in recipe.families]
    return SentenceEncoder(vectors, whitening=whitening, mixtures=mixtures, stop_words=recipe.stop_words)


def _mixture(
    whitened: Any, made_from: list, families: tuple[str, ...], recipe: Recipe, stages: Stages
) -> Mixture:
    return stages.kept(
        f"mixture {'+'.join(families)}",
        [*made_from, families, recipe.components],
        lambda: Mixture(recipe.components, families=families, random_state=recipe.seed).fit(whitened),
        lambda made, folder: made.save(folder),
        Mixture.load,
    )


def image_features(
    dataset: Dataset, encoder: Any, work: str | os.PathLike | None, client: Client | None = None
) -> tuple[Dataset, np.ndarray]:
    """The data set without the photos that cannot be read, and the networks' vectors (n, p) of the rest."""
    parts: list[Any] = list(encoder_parts(encoder))
    if client is not None:
        from fishermix.distributed.images import ClusterImageEncoder

        parts = [ClusterImageEncoder(part, client) for part in parts]
    with stages_in(work) as stages:
        results = [extract(dataset.image_paths, part, stages.folder) for part in parts]
    failed = {str(path) for result in results for path in result.failed}
    good = np.array([str(path) not in failed for path in dataset.image_paths], bool)
    if not good.any():
        raise FishermixError(f"none of the {len(good)} photos of {dataset.name} can be read")
    if failed:
        print(f"fishermix: {len(failed)} photos cannot be read and are left out", file=sys.stderr)
        dataset = dataset.select(np.flatnonzero(good))
    return dataset, np.hstack([result.features[good] for result in results])


def joint_space(
    dataset: Dataset,
    features: np.ndarray,
    encoder: SentenceEncoder,
    image_encoder: Any,
    recipe: Recipe,
    stages: Stages,
    client: Client | None = None,
) -> tuple[RegularizedCCA, HubnessCorrection | None]:
    """CCA of the training pairs, with the ridges and the scale that are best on the validation images; and
    the banks of training points, if the recipe asks for them.
    """
    prepared = prepare_features(features, recipe, [part.n_features for part in encoder_parts(image_encoder)])
    is_train = dataset.splits == "train"
    train_part, dev_part = dataset.part("train"), dataset.part("dev")
    _expect_known(train_part, encoder)
    with stages.timed("covariances"):
        if client is None:
            sums = CovarianceSums.from_blocks(
                prepared[is_train], encoder.blocks(train_part.sentences), train_part.image_of
            )
        else:
            from fishermix.distributed.covariances import covariance_sums

            sums = covariance_sums(
                prepared[is_train], train_part.sentences, train_part.image_of, client, encoder
            )
    dev = Vectors(prepared[dataset.splits == "dev"], encoder.transform(dev_part.sentences))
    bank = None
    if recipe.neighbours:
        random = np.random.default_rng(recipe.seed)
        images = random.permutation(np.flatnonzero(is_train))[: recipe.bank]
        sentences = random.permutation(len(train_part.sentences))[: recipe.bank]
        bank = Vectors(prepared[images], encoder.transform([train_part.sentences[row] for row in sentences]))
    best: tuple[float, RegularizedCCA, float, HubnessCorrection | None] | None = None
    kept = min(recipe.kept, prepared.shape[1], encoder.n_features)
    with stages.timed("ridges"):
        for cca in RegularizedCCA(kept, scale=None).path(sums, recipe.reg_x, recipe.reg_y):
            of_dev, of_bank = dev.projected(cca), bank.projected(cca) if bank else None
            for scale in recipe.scales:
                by = (cca.correlations_**scale).astype(np.float32)
                hubness = (
                    HubnessCorrection.of_points(*of_bank.points(by), recipe.neighbours) if of_bank else None
                )
                score = recall_sum(*of_dev.points(by), dev_part.image_of, hubness)
                if best is None or score > best[0]:
                    best = score, cca, float(scale), hubness
    assert best is not None
    _, cca, cca.scale, hubness = best
    return cca, hubness


def _expect_known(part: Dataset, encoder: SentenceEncoder) -> None:
    """At least two training sentences must say something."""
    lookup = encoder.lookup
    known = (sentence for sentence in part.sentences if any(map(lookup.__getitem__, lookup.tokens(sentence))))
    if len(list(islice(known, 2))) < 2:
        raise FishermixError(
            f"the word vectors know no word of the {len(part.sentences)} training sentences of {part.name}: "
            "give sentences in the language of the vectors, or other vectors"
        )


@dataclass(frozen=True)
class Vectors:
    """Photos and sentences, in rows; a zero row is a sentence without a known word."""

    images: np.ndarray
    sentences: np.ndarray

    def projected(self, cca: RegularizedCCA) -> Vectors:
        known = np.any(self.sentences, axis=1, keepdims=True)
        return Vectors(cca.transform(self.images), np.where(known, cca.transform_y(self.sentences), 0))

    def points(self, by: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of length 1, the dimensions multiplied by `by` (d,)."""
        return unit_rows(self.images * by), unit_rows(self.sentences * by)
