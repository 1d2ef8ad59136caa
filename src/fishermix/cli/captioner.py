"""`fishermix captioner`: train a captioner on a model's joint space, measure it, look at what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import ModelOption, open_model, tell
from fishermix.cli.train import DataOption, _dev_trained_on
from fishermix.errors import FishermixError

if TYPE_CHECKING:
    from fishermix.caption.captioner import Captioner
    from fishermix.caption.trainer import Training
    from fishermix.datasets import Dataset
    from fishermix.model.model import ImageTextModel

captioner_app = typer.Typer(no_args_is_help=True, help="Train and measure the part that writes sentences.")
app.add_typer(captioner_app, name="captioner")

FeaturesOption = Annotated[
    Path | None, typer.Option("--features", help="Folder that keeps image features between runs.")
]
BeamOption = Annotated[
    int, typer.Option(min=1, help="Sentences followed at once; 1 takes the best word at each step.")
]
SplitOption = Annotated[str, typer.Option(help="train, dev or test.")]


@captioner_app.command(epilog="Example: fishermix captioner train --model model/ --data flickr8k:DIR")
def train(
    model: Annotated[Path, typer.Option(help="Folder of a trained model; the captioner is written into it.")],
    data: DataOption = [],  # noqa: B006 - typer reads the default, nobody changes it
    data_no_dev: Annotated[
        list[str], typer.Option(help="Like --data, but its validation photos are trained on too.")
    ] = [],  # noqa: B006
    recipe: Annotated[str, typer.Option(help="default or paper.")] = "default",
    epochs: Annotated[int | None, typer.Option(min=1, help="The recipe's number if left out.")] = None,
    min_count: Annotated[
        int | None, typer.Option(min=1, help="How often a word must occur to be in the dictionary.")
    ] = None,
    features: FeaturesOption = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder of the unfinished training; MODEL.captioner if left out.")
    ] = None,
    history: Annotated[
        Path | None, typer.Option(help="Write the losses and dev measures of every epoch to this JSON file.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the first weights and the order of the sentences.")] = 0,
) -> None:
    """Train a captioner for a model. Killed, it goes on where it was; Ctrl-C keeps the best epoch so far."""
    from dataclasses import replace

    from fishermix.caption.recipe import RECIPES
    from fishermix.datasets import combine, open_dataset
    from fishermix.model.training import with_dev

    if recipe not in RECIPES:
        raise FishermixError(f"there is no recipe '{recipe}': choose among {', '.join(RECIPES)}")
    if not data and not data_no_dev:
        raise FishermixError("name at least one data set, such as --data flickr8k:DIR")
    chosen = RECIPES[recipe]
    chosen = replace(chosen, epochs=epochs or chosen.epochs, min_count=min_count or chosen.min_count)
    sets = [open_dataset(spec) for spec in data] + [
        _dev_trained_on(open_dataset(spec)) for spec in data_no_dev
    ]
    dataset = with_dev(combine(sets), seed)
    loaded = open_model(model)
    checkpoint = checkpoint or model.with_name(model.name + ".captioner")
    training = _training(loaded, dataset, features, recipe=chosen, folder=checkpoint, seed=seed)
    if training.position.history:
        tell(f"going on after epoch {training.position.epoch} of the training in {checkpoint}")
    try:
        training.run()
    finally:
        # Ctrl-C too: what the finished epochs found is kept, and the checkpoint can still go on.
        if training.best is not None:
            training.best.save(model / "captioner")
            _write_json(history, training.position.history)
            _tell_best(training, model)
    training.remove_checkpoint()


def _training(model: ImageTextModel, dataset: Dataset, features: Path | None, **options) -> Training:
    try:
        from fishermix.caption.trainer import Training
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise FishermixError("training a captioner needs torch: pip install 'fishermix[caption]'") from error
    from fishermix.caption.corpus import caption_set

    train_set = caption_set(model, dataset.part("train"), features)[1]
    dev_set = caption_set(model, dataset.part("dev"), features)[1]
    return Training(train_set, dev_set, model.encode_text, model_key=model.space_key, **options)


def _tell_best(training: Training, model: Path) -> None:
    best = training.position.history[training.position.best_epoch - 1]
    tell(
        f"the captioner of epoch {training.position.best_epoch} is in {model / 'captioner'}; on dev, greedy: "
        + ", ".join(f"{name} {best[name]:.2f}" for name in ("dev_loss", "bleu1", "bleu4", "cider_d"))
    )


@captioner_app.command(epilog="Example: fishermix captioner evaluate --data flickr8k:DIR --split test")
def evaluate(
    data: DataOption,
    split: SplitOption = "test",
    model: ModelOption = None,
    beam: BeamOption = 8,
    length_norm: Annotated[
        float | None, typer.Option(min=0, help="Power of the length that a sentence's log p is divided by.")
    ] = None,
    agreement: Annotated[
        float | None,
        typer.Option(min=0, help="Weight of a sentence's cosine with the photo; 0 asks the network alone."),
    ] = None,
    features: FeaturesOption = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write `NAME<TAB>sentence` lines to this file.")] = None,
) -> None:
    """BLEU-1 to 4, ROUGE-L and CIDEr-D in percent, and how much of what it writes is its own."""
    from fishermix.caption.captioner import AGREEMENT, LENGTH_NORM
    from fishermix.caption.corpus import caption_set
    from fishermix.caption.originality import originality
    from fishermix.datasets import combine, open_dataset
    from fishermix.evaluation.captions import caption_scores

    loaded = open_model(model)
    captioner = _captioner(loaded)
    dataset = combine([open_dataset(spec) for spec in data])
    part, captions = caption_set(loaded, dataset.part(split), features)
    norm = LENGTH_NORM if length_norm is None else length_norm
    weight = AGREEMENT if agreement is None else agreement
    written = captioner.caption(captions.points, beam, norm, encode_text=loaded.encode_text, agreement=weight)
    scores = caption_scores(written, captions.references())
    has_training = bool((dataset.splits == "train").any())
    known = dataset.part("train").sentences if has_training else None
    rows = {
        "written": originality(written, known),
        "true, the first of each photo": originality([few[0] for few in captions.references()], known),
        "true, all": originality(part.sentences, known),
    }
    _print_scores(f"{dataset.name} {split}, {len(part)} photos, beam {beam}", scores)
    _print_originality(rows)
    how = {"beam": beam, "length_norm": norm, "agreement": weight}
    about = {"data": dataset.name, "split": split, "images": len(part), **how}
    of_words = {name: row.as_dict() for name, row in rows.items()}
    _write_json(json_file, {**scores, **about, "originality": of_words})
    if out:
        out.write_text("".join(f"{name}\t{text}\n" for name, text in zip(part.image_names, written)), "utf8")


@captioner_app.command(
    "page", epilog="Example: fishermix captioner page --data flickr8k:DIR --out captions.html"
)
def page_command(
    data: DataOption,
    out: Annotated[Path, typer.Option(help="The HTML file; it holds the photos, so mind who may have them.")],
    split: SplitOption = "test",
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="Photos on the page.")] = 50,
    seed: Annotated[int, typer.Option(help="Which photos are drawn.")] = 0,
    model: ModelOption = None,
    beam: BeamOption = 8,
    features: FeaturesOption = None,
) -> None:
    """Make one HTML page of photos with the sentences written for them and the true ones."""
    from fishermix.caption.corpus import caption_set
    from fishermix.caption.page import page
    from fishermix.datasets import combine, open_dataset
    from fishermix.storage import write_atomically

    loaded = open_model(model)
    captioner = _captioner(loaded)
    dataset = combine([open_dataset(spec) for spec in data])
    drawn = dataset.sample(split, min(number, len(dataset.part(split))), seed)
    part, captions = caption_set(loaded, drawn, features)
    written = captioner.caption(captions.points, beam=beam, encode_text=loaded.encode_text)
    title = f"{len(part)} photos of {dataset.name}, {split}"
    write_atomically(out, page(title, part.image_paths, written, captions.references()).encode())
    tell(f"the page is in {out}")


def _captioner(model: ImageTextModel) -> Captioner:
    if model.captioner is None:
        raise FishermixError(
            "this model has no captioner: train one with `fishermix captioner train --model MODEL`"
        )
    return model.captioner


def _write_json(path: Path | None, value: object) -> None:
    from fishermix.storage import write_atomically

    if path:
        write_atomically(path, (json.dumps(value, indent=1) + "\n").encode())


def _print_scores(title: str, scores: dict[str, float]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*scores, title=title, title_justify="left")
    table.add_row(*(f"{value:.1f}" for value in scores.values()))
    Console().print(table)


def _print_originality(rows: dict) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = ("sentences", "% new", "different", "words used", "mean length")
    table = Table("", *columns, caption="new: not in the training set", caption_justify="left")
    for name, row in rows.items():
        new = "" if row.new is None else f"{row.new:.1f}"
        table.add_row(name, f"{row.sentences}", new, f"{row.distinct}", f"{row.words}", f"{row.length:.1f}")
    Console().print(table)
