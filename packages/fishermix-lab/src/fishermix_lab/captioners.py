"""Training a captioner for a model, and measuring what it writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fishermix.errors import FishermixError, install_command
from fishermix.progress import tell_person
from fishermix_photos.model.captioner.captioner import Captioner
from fishermix_photos.model.captioner.vocabulary import CaptionSet
from fishermix_photos.model.model import ImageTextModel

from fishermix_lab.captions.confidence import fit_confidence, is_right
from fishermix_lab.captions.measures import Originality, caption_scores, originality
from fishermix_lab.captions.recipe import CaptionRecipe
from fishermix_lab.datasets.readers import Dataset
from fishermix_lab.stages import Stages
from fishermix_lab.training import image_features, with_dev


def train_captioner(
    model: ImageTextModel,
    dataset: Dataset,
    recipe: CaptionRecipe,
    work: Path,
    save: Callable[[Captioner, list[dict[str, float]], int], None],
) -> Captioner:
    """Train on the "train" photos of a data set; its "dev" photos choose the epoch and fit the confidence.

    A training that was interrupted is resumed. At its end, and after Ctrl-C, `save` gets the best captioner,
    the losses and dev scores of every epoch, and the number of the best epoch.
    """
    stages = Stages(work)
    dataset = with_dev(dataset, seed=0)
    with stages.hold():
        training = _prepare(model, dataset, recipe, stages.folder)
        if training.position.history:
            tell_person(f"Resuming after epoch {training.position.epoch} from the checkpoint in {work}.")
        try:
            training.run()
        finally:
            if training.best is not None:
                training.best.model_key = model.space_key
                save(training.best, training.position.history, training.position.best_epoch)
        best = training.best
        fewest = 100  # photos; fewer say little about how often a sentence is right
        if best.confidence is None or len(training.dev.points) >= fewest:
            _calibrate(model, best, training.dev)
        training.remove_checkpoint()
    return best


def _prepare(model: ImageTextModel, dataset: Dataset, recipe: CaptionRecipe, work: Path) -> Any:
    is_fine_tuned = recipe.name == "fine-tune"
    if is_fine_tuned and model.captioner is None:
        raise FishermixError(
            "The model has no captioner to start from. Train one with --recipe default.",
            code="wrong_parameter",
        )
    try:
        from fishermix_lab.captions.trainer import Training
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        command = install_command("fishermix-lab[torch]")
        raise FishermixError(
            f"Training a captioner needs torch. Run: {command}", code="missing_package"
        ) from error
    return Training(
        train=make_caption_set(model, dataset.part("train"), work),
        dev=make_caption_set(model, dataset.part("dev"), work),
        encode_text=model.encode_text,
        recipe=recipe,
        folder=work / "captioner",
        start=model.captioner if is_fine_tuned else None,
    )


def _calibrate(model: ImageTextModel, captioner: Captioner, captions: CaptionSet) -> None:
    """Fit the confidence of a captioner to photos that it was not trained on."""
    written = captioner.describe(captions.points, encode_text=model.encode_text)
    right = [is_right(found.sentence, true) for found, true in zip(written, captions.references())]
    points = model.encode_text([found.sentence for found in written])
    others = np.roll(captions.points, len(written) // 2, axis=0)
    captioner.confidence = fit_confidence(
        np.array([found.cosine for found in written]),
        np.array([found.agreement for found in written]),
        np.array(right),
        np.einsum("nd,nd->n", points, others),
    )


def make_caption_set(model: ImageTextModel, dataset: Dataset, work: Path | None) -> CaptionSet:
    """The readable photos of `dataset` that have sentences; `work` keeps image features."""
    dataset = dataset.select(np.unique(dataset.image_of))
    features = work and work / "features"
    dataset, vectors = image_features(dataset, model.image_encoder, features)
    return CaptionSet(model.joint_space.embed_left(vectors), dataset.sentences, dataset.image_of)


@dataclass(frozen=True)
class Evaluation:
    """The number of photos, the measures of their captions in percent, and how original these are."""

    images: int
    scores: dict[str, float]
    originality: dict[str, Originality]


def evaluate_captioner(
    model: ImageTextModel,
    captioner: Captioner,
    dataset: Dataset,
    split: str,
    work: Path | None,
    decoding: dict[str, Any],
) -> Evaluation:
    """Compare the captions of a split with the true ones; `decoding` are options of `Captioner.describe`."""
    captions = make_caption_set(model, dataset.part(split), work)
    written = captioner.caption(captions.points, encode_text=model.encode_text, **decoding)
    true = captions.references()
    has_training = bool((dataset.splits == "train").any())
    known = dataset.part("train").sentences if has_training else None
    found = {
        "written": originality(written, known),
        "true, the first of each photo": originality([sentences[0] for sentences in true], known),
        "true, all": originality([sentence for sentences in true for sentence in sentences], known),
    }
    return Evaluation(len(written), caption_scores(written, true), found)
