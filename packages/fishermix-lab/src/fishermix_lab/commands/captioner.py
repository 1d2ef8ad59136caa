"""`fishermix captioner`: train and evaluate a captioner."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from fishermix.errors import FishermixError
from fishermix_photos.cli import App, app
from fishermix_photos.cli.common import check_output_file, open_model, require_captioner, say_table, tell

from fishermix_lab.commands import options
from fishermix_lab.commands.train import apply_changes, open_training_data

if TYPE_CHECKING:
    from fishermix_photos.model.captioner.captioner import Captioner

    from fishermix_lab.captions.measures import Originality

captioner_app = App(help="Train and evaluate the network that writes captions.")
app.add_typer(captioner_app, name="captioner")


@dataclass(frozen=True)
class Decoding:
    """The options of `Captioner.describe`, written out because `--help` does not wait for the package."""

    beam: int = 16
    samples: int = 40


@captioner_app.command("train", examples=["fishermix captioner train --model model --data coco:DIR"])
def train_and_save(
    model: Annotated[Path, typer.Option(help="Folder of a trained model; the captioner is saved in it.")],
    data: options.Data = [],  # noqa: B006 - typer reads the default, nobody changes it
    data_only_train: options.OnlyTrain = [],  # noqa: B006
    recipe: Annotated[
        str,
        typer.Option(
            "--recipe",
            help="Training recipe: default, paper, or fine-tune (start from the captioner of the model).",
        ),
    ] = "default",
    changes: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change a field of the recipe: epochs=5, min_count=6 (words that occur less often are not "
            "written), units=256, … Can be given several times.",
        ),
    ] = [],  # noqa: B006
    work: options.Stages = None,
) -> None:
    """Train a captioner for a model.

    If training is interrupted, run the same command again to resume it. Ctrl-C saves the best epoch so far.
    """
    from fishermix.saved import write_atomically

    from fishermix_lab.captioners import train_captioner
    from fishermix_lab.captions.recipe import CAPTION_RECIPES
    from fishermix_lab.datasets.readers import combine

    if recipe not in CAPTION_RECIPES:
        raise FishermixError(
            f"There is no recipe '{recipe}'. Choose one of {', '.join(CAPTION_RECIPES)}.",
            code="wrong_parameter",
        )
    chosen = apply_changes(CAPTION_RECIPES[recipe], changes)
    if recipe == "fine-tune" and any(change.startswith("min_count=") for change in changes):
        raise FishermixError(
            "--recipe fine-tune keeps the words of the captioner. Omit --set min_count.",
            code="wrong_parameter",
        )
    dataset = combine(open_training_data(data, data_only_train))
    loaded, model = open_model(model), model.absolute()
    folder = work or model.with_name(f"{model.name}.work")

    def save(captioner: Captioner, history: list[dict[str, float]], best_epoch: int) -> None:
        captioner.save(model / "captioner")
        write_atomically(folder / "captioner.json", (json.dumps(history, indent=1) + "\n").encode())
        best = history[best_epoch - 1]
        scores = ", ".join(f"{name} {best[name]:.2f}" for name in ("dev_loss", "bleu1", "bleu4", "cider_d"))
        tell(f"Saved the captioner of epoch {best_epoch} in {model / 'captioner'}. On dev: {scores}.")

    train_captioner(loaded, dataset, chosen, folder, save).save(model / "captioner")


@captioner_app.command("evaluate", examples=["fishermix captioner evaluate --data flickr8k:DIR --split test"])
def measure_captions(
    data: options.Data,
    split: options.Split = "test",
    model: options.Model = None,
    changes: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change how sentences are chosen: beam=1 (greedy search; default 16), samples=0 (none are "
            "sampled; default 40).",
        ),
    ] = [],  # noqa: B006
    work: options.Work = None,
    json_file: options.JsonFile = None,
) -> None:
    """Evaluate the captions of a split: BLEU-1 to 4, ROUGE-L, CIDEr-D and originality, in percent."""
    from fishermix_photos.model.saved import SHIPPED

    from fishermix_lab.captioners import evaluate_captioner
    from fishermix_lab.datasets.readers import combine
    from fishermix_lab.record import describe_command, describe_evaluation, write_rows

    check_output_file(json_file)
    decoding = asdict(apply_changes(Decoding(), changes))
    loaded = open_model(model)
    captioner = require_captioner(loaded)
    dataset = combine(open_training_data(data))
    begin = time.monotonic()
    found = evaluate_captioner(loaded, captioner, dataset, split, work, decoding)
    seconds = round(time.monotonic() - begin, 1)
    title = f"{dataset.name} {split}, {found.images} photos, beam {decoding['beam']}"
    say_table(title, list(found.scores), [[f"{value:.1f}" for value in found.scores.values()]])
    _print_originality(found.originality)
    if json_file:
        given = {"data": data, "split": split, "model": model, "set": list(changes)}
        row = {
            "label": ", ".join(changes) or "default",
            "command": describe_command("fishermix captioner evaluate", **given),
            **describe_evaluation(loaded, model or SHIPPED, dataset.part(split), ["captions"]),
            "seconds": {"evaluation": seconds},
            "scores": found.scores,
            "originality": {name: asdict(one) for name, one in found.originality.items()},
        }
        write_rows(json_file, [row])


def _print_originality(rows: dict[str, Originality]) -> None:
    columns = ("", "sentences", "% new", "distinct", "words used", "mean length")
    cells = []
    for name, row in rows.items():
        new = "" if row.new is None else f"{row.new:.1f}"
        cells.append((name, f"{row.sentences}", new, f"{row.distinct}", f"{row.words}", f"{row.length:.1f}"))
    say_table("new: not in the training set", columns, cells)
