"""`fishermix captioner`: train and evaluate a captioner, and show what it writes."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from fishermix.errors import FishermixError
from fishermix.runtime import install_command

from fishermix_photos.cli import App, app
from fishermix_photos.cli.common import ModelOption, open_model, require_captioner
from fishermix_photos.cli.output import say_table, tell
from fishermix_photos.cli.train import DataOption, JsonFileOption, OnlyTrainOption, open_training_data

if TYPE_CHECKING:
    from fishermix.caption.captioner import Captioner
    from fishermix.caption.recipe import CaptionRecipe
    from fishermix.caption.trainer import Training
    from fishermix.caption.vocabulary import CaptionSet
    from fishermix.measures.captions import Originality

    from fishermix_photos.lab.datasets import Dataset
    from fishermix_photos.model import ImageTextModel

captioner_app = App(help="Train and evaluate the network that writes captions.")
app.add_typer(captioner_app, name="captioner")

FeaturesOption = Annotated[
    Path | None, typer.Option("--features", help="Folder of the feature cache: photos are encoded once.")
]
SplitOption = Annotated[str, typer.Option(help="The split to use: train, dev or test.")]
ModelFolderOption = Annotated[
    Path, typer.Option("--model", help="Folder of a trained model; the captioner is saved in it.")
]
CaptionRecipeOption = Annotated[
    str,
    typer.Option(
        help="Training recipe: default, paper, or fine-tune (start from the captioner of the model)."
    ),
]
EpochsOption = Annotated[
    int | None, typer.Option(min=1, help="Number of epochs. Default: from the recipe.", show_default=False)
]
MinCountOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Minimum number of occurrences of a word of the vocabulary. Default: from the recipe.",
        show_default=False,
    ),
]
CheckpointOption = Annotated[
    Path | None, typer.Option(help="Checkpoint folder. Default: MODEL.captioner.", show_default=False)
]
HistoryOption = Annotated[
    Path | None, typer.Option(help="Write the loss and dev scores of every epoch to this JSON file.")
]
BeamOption = Annotated[int, typer.Option(min=1, help="Beam size; 1 is greedy search.")]
SamplesOption = Annotated[
    int,
    typer.Option(min=0, help="Sampled sentences that compete with the beam's; 0: the beam's score decides."),
]
LengthNormOption = Annotated[
    float, typer.Option(min=0, help="Exponent of the length in the score log p / length^EXPONENT.")
]
RerankWeightOption = Annotated[
    float,
    typer.Option(min=0, help="Weight of the cosine of sentence and photo in re-ranking; 0: no re-ranking."),
]
SentencesFileOption = Annotated[
    Path | None, typer.Option("--out", help="Write lines of `NAME<TAB>sentence` to this file.")
]


@captioner_app.command(epilog="Example: fishermix captioner train --model model/ --data flickr8k:DIR")
def train(
    model: ModelFolderOption,
    data: DataOption = [],  # noqa: B006 - typer reads the default, nobody changes it
    data_only_train: OnlyTrainOption = [],  # noqa: B006
    recipe: CaptionRecipeOption = "default",
    epochs: EpochsOption = None,
    min_count: MinCountOption = None,
    features: FeaturesOption = None,
    checkpoint: CheckpointOption = None,
    history: HistoryOption = None,
    seed: Annotated[int, typer.Option(help="Seeds the initial weights and the order of sentences.")] = 0,
) -> None:
    """Train a captioner for a model.

    If training is interrupted, run the same command again to resume it. Ctrl-C saves the best epoch so far.
    """
    from fishermix.storage import hold_folder

    from fishermix_photos.lab.datasets import combine
    from fishermix_photos.lab.training import with_dev

    chosen = _choose_caption_recipe(recipe, epochs, min_count)
    dataset = with_dev(combine(open_training_data(data, data_only_train)), seed)
    loaded, model = open_model(model), model.absolute()
    start = _find_start(loaded, min_count) if recipe == "fine-tune" else None
    checkpoint = checkpoint or model.with_name(model.name + ".captioner")
    with hold_folder(checkpoint, "--checkpoint"):
        training = _prepare_training(
            loaded, dataset, features, recipe=chosen, folder=checkpoint, seed=seed, start=start
        )
        if training.position.history:
            tell(f"Resuming after epoch {training.position.epoch} from the checkpoint in {checkpoint}.")
        try:
            training.run()
        finally:
            # After Ctrl-C too: the best finished epoch is saved, and the checkpoint can still be resumed.
            if training.best is not None:
                training.best.save(model / "captioner")
                _write_json(history, training.position.history)
                _tell_best(training, model)
        _calibrate_best(training, loaded).save(model / "captioner")
        training.remove_checkpoint()


def _choose_caption_recipe(name: str, epochs: int | None, min_count: int | None) -> CaptionRecipe:
    """The recipe with the options that are given."""
    from fishermix.caption.recipe import CAPTION_RECIPES

    if name not in CAPTION_RECIPES:
        raise FishermixError(f"There is no recipe '{name}'. Choose one of {', '.join(CAPTION_RECIPES)}.")
    chosen = CAPTION_RECIPES[name]
    return replace(chosen, epochs=epochs or chosen.epochs, min_count=min_count or chosen.min_count)


def _calibrate_best(training: Training, model: ImageTextModel) -> Captioner:
    """The best captioner of a training, with its confidence fitted to the dev photos unless they are few."""
    from fishermix_photos.lab.training import FEWEST_TO_CALIBRATE, calibrate_captioner

    best, n_photos = training.best, len(training.dev.points)
    assert best is not None
    if best.confidence is not None and n_photos < FEWEST_TO_CALIBRATE:
        tell(f"{n_photos} validation photos are too few to fit the confidence again. It is unchanged.")
    else:
        calibrate_captioner(model, best, training.dev)
    return best


def _find_start(model: ImageTextModel, min_count: int | None) -> Captioner:
    if min_count is not None:
        raise FishermixError("--recipe fine-tune keeps the words of the captioner. Omit --min-count.")
    if model.captioner is None:
        raise FishermixError("The model has no captioner to start from. Train one with --recipe default.")
    return model.captioner


def _prepare_training(model: ImageTextModel, dataset: Dataset, features: Path | None, **options) -> Training:
    try:
        from fishermix.caption.trainer import Training
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise FishermixError(f"Training a captioner needs torch. Run: {install_command('torch')}") from error
    from fishermix_photos.lab.training import make_caption_set

    train_set = make_caption_set(model, dataset.part("train"), features)[1]
    dev_set = make_caption_set(model, dataset.part("dev"), features)[1]
    return Training(train_set, dev_set, model.encode_text, model_key=model.space_key, **options)


def _tell_best(training: Training, model: Path) -> None:
    best = training.position.history[training.position.best_epoch - 1]
    tell(
        f"Saved the captioner of epoch {training.position.best_epoch} in {model / 'captioner'}. "
        + "Greedy search on dev: "
        + ", ".join(f"{name} {best[name]:.2f}" for name in ("dev_loss", "bleu1", "bleu4", "cider_d"))
    )


@captioner_app.command(epilog="Example: fishermix captioner evaluate --data flickr8k:DIR --split test")
def evaluate(
    data: DataOption,
    split: SplitOption = "test",
    model: ModelOption = None,
    beam: BeamOption = 16,
    samples: SamplesOption = 40,
    length_norm: LengthNormOption = 0.7,
    rerank_weight: RerankWeightOption = 8.0,
    features: FeaturesOption = None,
    json_file: JsonFileOption = None,
    out: SentencesFileOption = None,
) -> None:
    """Evaluate the captions of a split: BLEU-1 to 4, ROUGE-L, CIDEr-D and originality, in percent."""
    from fishermix.measures.captions import caption_scores
    from fishermix.storage import write_atomically

    from fishermix_photos.lab.datasets import combine, open_dataset
    from fishermix_photos.lab.training import make_caption_set

    loaded = open_model(model)
    captioner = require_captioner(loaded)
    dataset = combine([open_dataset(spec) for spec in data])
    part, captions = make_caption_set(loaded, dataset.part(split), features)
    decoding: dict[str, Any] = {"beam": beam, "samples": samples}
    decoding |= {"length_norm": length_norm, "rerank_weight": rerank_weight}
    written = captioner.caption(captions.points, encode_text=loaded.encode_text, **decoding)
    scores = caption_scores(written, captions.references())
    title = f"{dataset.name} {split}, {len(part)} photos, beam {beam}"
    say_table(title, list(scores), [[f"{value:.1f}" for value in scores.values()]])
    originality = _measure_originality(written, captions, dataset)
    _print_originality(originality)
    about = {"data": dataset.name, "split": split, "images": len(part), **decoding}
    counts = {name: asdict(row) for name, row in originality.items()}
    _write_json(json_file, {**scores, **about, "originality": counts})
    if out:
        lines = "".join(f"{name}\t{text}\n" for name, text in zip(part.image_names, written))
        write_atomically(out, lines.encode(), private=True)


def _measure_originality(
    written: list[str], captions: CaptionSet, dataset: Dataset
) -> dict[str, Originality]:
    """The originality of written sentences and, to compare, of the true ones."""
    from fishermix.measures.captions import originality

    has_training = bool((dataset.splits == "train").any())
    known = dataset.part("train").sentences if has_training else None
    true = captions.references()
    return {
        "written": originality(written, known),
        "true, the first of each photo": originality([sentences[0] for sentences in true], known),
        "true, all": originality([sentence for sentences in true for sentence in sentences], known),
    }


def _write_json(path: Path | None, value: object) -> None:
    from fishermix.storage import write_atomically

    if path:
        write_atomically(path, (json.dumps(value, indent=1) + "\n").encode())


def _print_originality(rows: dict[str, Originality]) -> None:
    columns = ("", "sentences", "% new", "distinct", "words used", "mean length")
    cells = [
        (
            name,
            f"{row.sentences}",
            "" if row.new is None else f"{row.new:.1f}",
            f"{row.distinct}",
            f"{row.words}",
            f"{row.length:.1f}",
        )
        for name, row in rows.items()
    ]
    say_table("", columns, cells, caption="new: not in the training set")
