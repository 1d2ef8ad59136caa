"""`fishermix captioner`: train and evaluate a captioner, and show what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import ModelOption, open_model, tell
from fishermix.cli.train import DataOption, NoDevOption, OnlyTrainOption, open_training_data
from fishermix.errors import FishermixError
from fishermix.extras import install_command

if TYPE_CHECKING:
    from fishermix.caption.captioner import Captioner
    from fishermix.caption.trainer import Training
    from fishermix.datasets import Dataset
    from fishermix.model.model import ImageTextModel

captioner_app = typer.Typer(no_args_is_help=True, help="Train and evaluate the network that writes captions.")
app.add_typer(captioner_app, name="captioner")

FeaturesOption = Annotated[
    Path | None, typer.Option("--features", help="Folder of the feature cache: photos are encoded once.")
]
BeamOption = Annotated[int, typer.Option(min=1, help="Beam size; 1 is greedy search.")]
SplitOption = Annotated[str, typer.Option(help="The split to use: train, dev or test.")]


@captioner_app.command(epilog="Example: fishermix captioner train --model model/ --data flickr8k:DIR")
def train(
    model: Annotated[Path, typer.Option(help="Folder of a trained model; the captioner is saved in it.")],
    data: DataOption = [],  # noqa: B006 - typer reads the default, nobody changes it
    data_no_dev: NoDevOption = [],  # noqa: B006
    data_only_train: OnlyTrainOption = [],  # noqa: B006
    recipe: Annotated[
        str,
        typer.Option(
            help="Training recipe: default, paper, or fine-tune (start from the captioner of the model)."
        ),
    ] = "default",
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of epochs. Default: from the recipe.", show_default=False),
    ] = None,
    min_count: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Minimum number of occurrences of a word of the vocabulary. Default: from the recipe.",
            show_default=False,
        ),
    ] = None,
    features: FeaturesOption = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Checkpoint folder. Default: MODEL.captioner.", show_default=False)
    ] = None,
    history: Annotated[
        Path | None, typer.Option(help="Write the loss and dev scores of every epoch to this JSON file.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the initial weights and the order of the sentences.")
    ] = 0,
) -> None:
    """Train a captioner for a model.

    If training is interrupted, run the same command again to resume it. Ctrl-C saves the best epoch so far.
    """
    from dataclasses import replace

    from fishermix.caption.recipe import RECIPES
    from fishermix.datasets import combine
    from fishermix.experiments.captions import FEWEST_TO_CALIBRATE, calibrate
    from fishermix.locks import hold_folder
    from fishermix.model.training import with_dev

    if recipe not in RECIPES:
        raise FishermixError(f"There is no recipe '{recipe}'. Choose one of {', '.join(RECIPES)}.")
    chosen = RECIPES[recipe]
    chosen = replace(chosen, epochs=epochs or chosen.epochs, min_count=min_count or chosen.min_count)
    dataset = with_dev(combine(open_training_data(data, data_no_dev, data_only_train)), seed)
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
        assert training.best is not None
        if training.best.confidence is not None and len(training.dev.points) < FEWEST_TO_CALIBRATE:
            n_photos = len(training.dev.points)
            tell(f"{n_photos} validation photos are too few to fit the confidence again. It stays as it was.")
        else:
            calibrate(loaded, training.best, training.dev)
        training.best.save(model / "captioner")
        training.remove_checkpoint()


def _find_start(model: ImageTextModel, min_count: int | None) -> Captioner:
    if min_count is not None:
        raise FishermixError("--recipe fine-tune keeps the words of the captioner. Leave out --min-count.")
    if model.captioner is None:
        raise FishermixError("The model has no captioner to start from. Train one with --recipe default.")
    return model.captioner


def _prepare_training(model: ImageTextModel, dataset: Dataset, features: Path | None, **options) -> Training:
    try:
        from fishermix.caption.trainer import Training
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise FishermixError(
            f"Training a captioner needs torch. Run: {install_command('caption')}"
        ) from error
    from fishermix.experiments.captions import make_caption_set

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


@captioner_app.command(
    epilog="Example: fishermix captioner adapt --model new/ --captioner-of old/ --data flickr8k:DIR"
)
def adapt(
    model: Annotated[Path, typer.Option(help="Folder of a model; the captioner is saved in it.")],
    captioner_of: Annotated[
        Path, typer.Option(help="The model whose captioner is adapted. It must use the same image network.")
    ],
    data: DataOption,
    features: FeaturesOption = None,
) -> None:
    """Give a model the captioner of another one, without training it again.

    The training photos show how points of one joint space map to the other.
    """
    from fishermix.caption.adapting import fit_image_map
    from fishermix.datasets import combine, open_dataset
    from fishermix.model.training import image_features

    new, old = open_model(model), open_model(captioner_of)
    captioner = _require_captioner(old)
    dataset = combine([open_dataset(spec) for spec in data])
    _, vectors = image_features(dataset.part("train"), new.image_encoder, features)
    adapted = fit_image_map(captioner, old.image_points(vectors), new.image_points(vectors), new.space_key)
    adapted.save(model / "captioner")
    tell(f"Saved the captioner. Next: fishermix captioner calibrate --model {model} --data DATA")


@captioner_app.command(
    "calibrate", epilog="Example: fishermix captioner calibrate --model model/ --data flickr8k:DIR"
)
def calibrate_command(
    model: Annotated[Path, typer.Option(help="Folder of a model with a captioner.")],
    data: DataOption,
    split: SplitOption = "dev",
    features: FeaturesOption = None,
) -> None:
    """Fit the confidence of a model's captions to photos that people have described.

    Training does this, with the dev photos.
    """
    from fishermix.datasets import combine, open_dataset
    from fishermix.experiments.captions import calibrate, make_caption_set

    loaded = open_model(model)
    captioner = _require_captioner(loaded)
    dataset = combine([open_dataset(spec) for spec in data])
    calibrate(loaded, captioner, make_caption_set(loaded, dataset.part(split), features)[1])
    captioner.save(model / "captioner")
    assert captioner.confidence is not None
    tell(f"Saved the captioner. Below the confidence {captioner.confidence.threshold:.2f} it is unsure.")


@captioner_app.command(epilog="Example: fishermix captioner evaluate --data flickr8k:DIR --split test")
def evaluate(
    data: DataOption,
    split: SplitOption = "test",
    model: ModelOption = None,
    beam: BeamOption = 16,
    samples: Annotated[
        int,
        typer.Option(
            min=0, help="Sampled sentences that compete with the beam's; 0: the beam's score decides."
        ),
    ] = 40,
    length_norm: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Exponent of the length in the score log p / length^EXPONENT. Default: 0.7.",
            show_default=False,
        ),
    ] = None,
    rerank_weight: Annotated[
        float | None,
        typer.Option(
            "--rerank-weight",
            "--agreement",
            min=0,
            help="Weight of the cosine of sentence and photo in re-ranking; 0: no re-ranking. Default: 8.",
            show_default=False,
        ),
    ] = None,
    features: FeaturesOption = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the scores to this JSON file.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write lines of `NAME<TAB>sentence` to this file.")] = None,
) -> None:
    """Evaluate the captions of a split: BLEU-1 to 4, ROUGE-L, CIDEr-D and originality, in percent."""
    from fishermix.caption.captioner import LENGTH_NORM, RERANK_WEIGHT
    from fishermix.datasets import combine, open_dataset
    from fishermix.evaluation.captions import caption_scores, originality
    from fishermix.experiments.captions import make_caption_set

    loaded = open_model(model)
    captioner = _require_captioner(loaded)
    dataset = combine([open_dataset(spec) for spec in data])
    part, captions = make_caption_set(loaded, dataset.part(split), features)
    norm = LENGTH_NORM if length_norm is None else length_norm
    weight = RERANK_WEIGHT if rerank_weight is None else rerank_weight
    written = captioner.caption(
        captions.points, beam, norm, encode_text=loaded.encode_text, rerank_weight=weight, samples=samples
    )
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
    # "agreement" is the name of the weight in 0.1, for programs that read it.
    how = {
        "beam": beam,
        "samples": samples,
        "length_norm": norm,
        "rerank_weight": weight,
        "agreement": weight,
    }
    about = {"data": dataset.name, "split": split, "images": len(part), **how}
    varied = {name: row.as_dict() for name, row in rows.items()}
    _write_json(json_file, {**scores, **about, "originality": varied})
    if out:
        from fishermix.storage import write_atomically

        lines = "".join(f"{name}\t{text}\n" for name, text in zip(part.image_names, written))
        write_atomically(out, lines.encode(), private=True)


@captioner_app.command(
    "page", epilog="Example: fishermix captioner page --data flickr8k:DIR --out captions.html"
)
def page_command(
    data: DataOption,
    out: Annotated[Path, typer.Option(help="The HTML file to write; it contains copies of the photos.")],
    split: SplitOption = "test",
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="Number of photos.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the random choice of photos.")] = 0,
    model: ModelOption = None,
    beam: BeamOption = 16,
    features: FeaturesOption = None,
) -> None:
    """Write an HTML page of photos with the sentences of the captioner and of people."""
    from fishermix.datasets import combine, open_dataset
    from fishermix.experiments.captions import make_caption_set, render_page
    from fishermix.storage import write_atomically

    loaded = open_model(model)
    captioner = _require_captioner(loaded)
    dataset = combine([open_dataset(spec) for spec in data])
    drawn = dataset.sample(split, min(number, len(dataset.part(split))), seed)
    part, captions = make_caption_set(loaded, drawn, features)
    written = captioner.caption(captions.points, beam=beam, encode_text=loaded.encode_text)
    title = f"{len(part)} photos of {dataset.name}, {split}"
    write_atomically(
        out, render_page(title, part.image_paths, written, captions.references()).encode(), private=True
    )
    tell(f"Wrote {out}.")


def _require_captioner(model: ImageTextModel) -> Captioner:
    if model.captioner is None:
        raise FishermixError(
            "This model has no captioner. Train one with `fishermix captioner train --model MODEL`."
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

    columns = ("sentences", "% new", "distinct", "words used", "mean length")
    table = Table("", *columns, caption="new: not in the training set", caption_justify="left")
    for name, row in rows.items():
        new = "" if row.new is None else f"{row.new:.1f}"
        table.add_row(name, f"{row.sentences}", new, f"{row.distinct}", f"{row.words}", f"{row.length:.1f}")
    Console().print(table)
