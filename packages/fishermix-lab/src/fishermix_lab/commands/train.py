"""`fishermix train`, `evaluate` and `reproduce`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer
from fishermix.errors import FishermixError
from fishermix_photos.cli import app
from fishermix_photos.cli.common import check_output_file, say, say_table, tell

from fishermix_lab.commands import options

if TYPE_CHECKING:
    from fishermix_lab.datasets.readers import Dataset
    from fishermix_lab.reproduce import Result

Settings = TypeVar("Settings")  # a dataclass


@app.command(examples=["fishermix train --data flickr8k:DIR --out model/"])
def train(
    out: options.Out,
    data: options.Data = [],  # noqa: B006 - typer reads the default, nobody changes it
    data_only_train: options.OnlyTrain = [],  # noqa: B006
    vectors: options.Vectors = Path(".cache/word2vec"),
    recipe: options.Recipe = "best",
    changes: options.Changes = [],  # noqa: B006
    work: options.Stages = None,
    words: options.Words = None,
    half: options.Half = False,
) -> None:
    """Train a model on captioned photos.

    Run the same command again to resume after an interruption.
    """
    from fishermix.saved import make_place
    from fishermix_photos.model.saved import MODEL_KIND

    from fishermix_lab.datasets.readers import combine
    from fishermix_lab.recipe import find_recipe
    from fishermix_lab.stages import Stages
    from fishermix_lab.training import evaluate_model, train_model

    chosen = apply_changes(find_recipe(recipe), changes)
    sets = open_training_data(data, data_only_train)
    _check_vectors_exist(vectors)
    out = make_place(out.absolute(), MODEL_KIND)
    work = work or out.with_name(f"{out.name}.work")
    stages = Stages(work)
    with stages.hold():
        model = train_model(combine(sets), vectors, chosen, stages, n_words=words)
        model.save(out, half=half)
        split = "test" if any((dataset.splits == "test").any() for dataset in sets) else "dev"
        for dataset in sets:
            if (dataset.splits == split).any():
                figures = evaluate_model(model, dataset.part(split), work / "features")
                _print_figures(f"{dataset.name} {split}", figures)
    say(f"The model is in {out}. You can delete {work}, which keeps finished stages for the next run.")


@app.command(examples=["fishermix evaluate model/ --data flickr8k:DIR --split test"])
def evaluate(
    model: Annotated[
        Path | None, typer.Argument(help="Folder of a model. Default: the model in the package.")
    ] = None,
    data: options.Data = [],  # noqa: B006
    split: options.Split = "test",
    sample: Annotated[
        int | None, typer.Option(min=1, help="Measure on this many random photos of the split.")
    ] = None,
    copies: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Measure on copies of the photos: a short side of at most this many pixels, quality 75.",
        ),
    ] = None,
    work: options.Work = None,
    json_file: options.JsonFile = None,
) -> None:
    """Measure search, annotation and sentence similarity as in the paper, and search by short phrases."""
    import numpy as np
    from fishermix_photos.model.model import ImageTextModel
    from fishermix_photos.model.saved import SHIPPED

    from fishermix_lab.copies import compare_copies, write_copies
    from fishermix_lab.datasets.readers import combine
    from fishermix_lab.phrases import measure_phrases
    from fishermix_lab.record import describe_command, describe_evaluation, write_rows
    from fishermix_lab.training import evaluate_model

    check_output_file(json_file)
    dataset = combine(open_training_data(data))
    part = dataset.sample(split, sample) if sample else dataset.part(split)
    loaded = ImageTextModel.load(model)
    features = work and work / "features"
    begin = time.monotonic()
    cosines = None
    title = f"{dataset.name} {split}"
    with TemporaryDirectory() as folder:
        measured = part
        if copies:
            title += f", copies of {copies} pixels"
            measured = write_copies(part, copies, Path(folder))
            cosines = compare_copies(loaded, part, measured, features)
        figures = evaluate_model(loaded, measured, features)
        phrases = measure_phrases(loaded, measured, features)
    seconds = round(time.monotonic() - begin, 1)
    _print_figures(title, figures)
    say(
        f"Short phrases: {phrases.precision:.3f} of the first five photos are right "
        f"({phrases.n_phrases} phrases; a photo is right if one of its captions has the phrase)."
    )
    nearness = {}
    if cosines is not None:
        nearness = {"mean": float(cosines.mean()), "5 %": float(np.quantile(cosines, 0.05))}
        say(
            f"Cosine of a photo and its copy: {nearness['mean']:.3f} on average, "
            f"at least {nearness['5 %']:.3f} for 95 % of the photos."
        )
    if json_file:
        given = {"data": data, "split": split, "sample": sample, "copies": copies}
        row = {
            "label": title,
            "command": describe_command("fishermix evaluate", model, **given),
            **describe_evaluation(loaded, model or SHIPPED, part, ["ranks"]),
            "seconds": {"evaluation": seconds},
            "figures": figures,
            "phrases": phrases._asdict(),
            **({"cosine": nearness} if nearness else {}),
        }
        write_rows(json_file, [row])


@app.command(examples=["fishermix reproduce flickr8k:DIR --recipe best --json results.json"])
def reproduce(
    data: Annotated[str, typer.Argument(metavar="KIND:PATH", help=options.DATA_HELP)],
    variants: options.Variants = None,
    repeats: options.Repeats = None,
    recipe: options.Recipe = "paper",
    changes: options.Changes = [],  # noqa: B006
    seed: options.Seed = 0,
    seeds: options.Seeds = 1,
    family: options.Family = [],  # noqa: B006
    vectors: options.Vectors = Path(".cache/word2vec"),
    test_images: options.TestImages = None,
    work: Annotated[Path, typer.Option(help="Folder for finished stages and variants.")] = Path(
        ".cache/reproduce"
    ),
    json_file: options.JsonFile = None,
) -> None:
    """Measure the variants of the paper and print them next to the published tables.

    Finished variants are kept: run the same command again to resume after an interruption.
    """
    from fishermix.text.word_vectors import WordVectors

    from fishermix_lab.datasets.readers import open_dataset
    from fishermix_lab.recipe import find_recipe, load_family
    from fishermix_lab.record import describe_command, write_rows
    from fishermix_lab.reproduce import Experiment, compare_variants

    check_output_file(json_file)
    names = variants.split(",") if variants else list(options.PAPER_VARIANTS)
    for loaded in map(load_family, family):
        names += [] if variants else [loaded.name, f"gaussian/laplace/{loaded.name}"]
    chosen = apply_changes(find_recipe(recipe).with_(seed=seed), changes)
    recipes = [chosen.with_(variant=name) for name in names]  # raises before the work begins
    dataset = open_dataset(data)
    if repeats is not None and repeats > dataset.repeats:
        tell(f"{dataset.name} has official splits; --repeats {repeats} is ignored.")
    _check_vectors_exist(vectors)
    given: dict[str, Any] = {"recipe": recipe, "set": list(changes), "family": list(family)}
    given |= {"repeats": repeats, "test_images": test_images, "seed": seed or None}
    given |= {"seeds": seeds if seeds > 1 else None}
    results = []
    experiment = Experiment(
        dataset=dataset,
        vectors=WordVectors.load(vectors),
        repeats=repeats,
        test_images=test_images,
        seeds=seeds,
        changes=changes,
    )
    for result in experiment.run(recipes, work):
        results.append(result)
        if json_file:
            command = describe_command(
                "fishermix reproduce", data, variants=result.variant, **given, vectors=vectors
            )
            write_rows(json_file, [result.as_row(command)], compare_variants(results))
        seconds = ", ".join(f"{name} {value:.0f} s" for name, value in result.seconds.items())
        tell(f"{result.variant}: {seconds}")
    _print_comparison(dataset.name, test_images, results)


def _print_comparison(dataset: str, test_images: int | None, results: list[Result]) -> None:
    """Print the table next to the published one, and which variants differ."""
    from rich.console import Console

    from fishermix_lab.reproduce import compare_variants
    from fishermix_lab.tables import as_text, find_table, format_comparisons

    console = Console(width=170)
    compared = compare_variants(results)
    console.print(as_text(find_table(dataset, test_images), results))
    if compared:
        console.print(format_comparisons(compared))


def apply_changes(settings: Settings, changes: Sequence[str]) -> Settings:
    """A copy of a dataclass with the fields of --set changed; a list has commas, none is None."""
    import msgspec

    types = get_type_hints(type(settings), include_extras=True)
    for change in changes:
        name, equals, text = change.partition("=")
        if name not in types or not equals:
            raise FishermixError(
                f"--set {change}: write NAME=VALUE, with one of {', '.join(types)}.", code="wrong_parameter"
            )
        given: str | list[str] | None = None if text == "none" else text
        if isinstance(getattr(settings, name), tuple):
            given = text.split(",") if text else []
        try:
            value = msgspec.convert(given, types[name], strict=False)
        except (msgspec.ValidationError, TypeError) as error:  # TypeError: of no type that a text can have
            reason = str(error).partition(" - at `")[0]
            raise FishermixError(f"--set {change}: {reason.rstrip('.')}.", code="wrong_parameter") from None
        settings = replace(settings, **{name: value})  # type: ignore[type-var]
    return settings


def _check_vectors_exist(vectors: Path) -> None:
    if not vectors.exists():
        raise FishermixError(
            f"There are no word vectors in {vectors}. Run `make word2vec`, or name yours with --vectors.",
            code="not_found",
        )


def open_training_data(data: Sequence[str], data_only_train: Sequence[str] = ()) -> list[Dataset]:
    """The data sets of a command, the latter without their validation photos."""
    from fishermix_lab.datasets.readers import open_dataset

    sets = [open_dataset(spec) for spec in data]
    for dataset in map(open_dataset, data_only_train):
        sets.append(dataset.select((dataset.splits != "dev").nonzero()[0]))
    if not sets:
        raise FishermixError(
            "Name at least one data set, for example --data flickr8k:DIR.", code="wrong_parameter"
        )
    return sets


def _print_figures(title: str, figures: dict[str, dict[str, float]]) -> None:
    from fishermix_lab.tables import MEASURES

    rows = [(task, *(f"{measures[name]:.1f}" for name in MEASURES)) for task, measures in figures.items()]
    say_table(title, ("task", *MEASURES), rows)
