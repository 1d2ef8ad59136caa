"""`fishermix train` and `fishermix evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import expect_folder_of
from fishermix.errors import FishermixError

if TYPE_CHECKING:
    from fishermix.datasets import Dataset

# Written out, because `--help` does not wait for the recipes and their schema.
RECIPE_HELP = "One of paper, best, shipped."
VARIANT_HELP = "mean, gmm, lmm, hglmm, gmm+hglmm, logistic, four families"
DataOption = Annotated[
    list[str],
    typer.Option("--data", help="A data set as KIND:PATH, such as flickr8k:DIR. Can be given several times."),
]
NoDevOption = Annotated[
    list[str], typer.Option(help="Like --data, but its validation photos are used for training as well.")
]
OnlyTrainOption = Annotated[
    list[str], typer.Option(help="Like --data, but its validation photos are not used at all.")
]


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="The folder to write the model to.")],
    data: DataOption = [],  # noqa: B006 - typer reads the default, nobody changes it
    data_no_dev: NoDevOption = [],  # noqa: B006
    data_only_train: OnlyTrainOption = [],  # noqa: B006
    vectors: Annotated[
        Path, typer.Option(help="Word vectors: a file, or a folder written by `fishermix vectors import`.")
    ] = Path(".cache/word2vec"),
    recipe: Annotated[str, typer.Option(help=RECIPE_HELP)] = "best",
    variant: Annotated[
        str | None,
        typer.Option(
            "--variant",
            "--row",
            help=f"The kind of sentence vector, one of {VARIANT_HELP}. Default: the recipe's.",
        ),
    ] = None,
    mixture_components: Annotated[
        int | None,
        typer.Option("--components", min=1, help="Components of each mixture. Default: the recipe's."),
    ] = None,
    n_components: Annotated[
        int | None,
        typer.Option(
            "--n-components", "--kept", min=1, help="Dimensions of the joint space. Default: the recipe's."
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="NAME[,NAME]: image networks; their vectors are concatenated. Default: the recipe's."
        ),
    ] = None,
    transformer: Annotated[
        str | None,
        typer.Option(
            help="Sentence transformer next to the Fisher vectors: all-MiniLM-L6-v2, a folder, or none. "
            "Default: the recipe's."
        ),
    ] = None,
    transformer_weight: Annotated[
        float | None, typer.Option(help="Factor of the transformer's vectors. Default: the recipe's.")
    ] = None,
    work: Annotated[
        Path | None, typer.Option(help="Folder for finished stages and image features. Default: OUT.work.")
    ] = None,
    words: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Vocabulary size: all caption words, then the most frequent others. "
            "Default: all words of the vectors.",
        ),
    ] = None,
    half: Annotated[bool, typer.Option(help="Store vectors and weights in half precision.")] = False,
    cluster: Annotated[
        str | None, typer.Option(help="Train on a Dask cluster: tcp://HOST:PORT, or local:N for N processes.")
    ] = None,
) -> None:
    """Train a model on captioned photos. Run the same command again to resume after an interruption.

    Example: fishermix train --data flickr8k:DIR --out model/
    """
    from contextlib import nullcontext

    from fishermix.datasets import combine
    from fishermix.distributed.cluster import connect
    from fishermix.model.folder import KIND
    from fishermix.model.model import ImageTextModel
    from fishermix.model.recipe import find_recipe
    from fishermix.model.stages import Stages
    from fishermix.model.training import train as train_model
    from fishermix.storage import make_place

    changes = {
        "variant": variant,
        "mixture_components": mixture_components,
        "n_components": n_components,
        "transformer_weight": transformer_weight,
    }
    chosen = find_recipe(recipe).with_(**{k: v for k, v in changes.items() if v is not None})
    if encoder:
        chosen = chosen.with_(encoders=tuple(encoder.split(",")))
    if transformer:
        chosen = chosen.with_(transformer=None if transformer == "none" else transformer)
    sets = open_training_data(data, data_no_dev, data_only_train)
    check_vectors_exist(vectors)
    dataset = combine(sets)
    out = out.absolute()
    make_place(out, KIND)
    work = work or out.with_name(f"{out.name}.work")
    stages = Stages(work)
    with stages.hold():
        with connect(cluster) if cluster else nullcontext() as client:
            model = train_model(ImageTextModel(vectors, chosen), dataset, stages, client)
        if words is not None:
            model.sentence_encoder = model.sentence_encoder.with_words_of(dataset.sentences, words)
        model.save(out, half=half)
        split = "test" if (dataset.splits == "test").any() else "dev"
        if (dataset.splits == split).any():
            for part in sets:
                if (part.splits == split).any():
                    found = model.evaluate(part.part(split), work / "features")
                    _print_table(f"{part.name} {split}", found)
    typer.echo(f"The model is in {out}. You can delete {work}, which keeps finished stages for the next run.")


@app.command()
def evaluate(
    model: Annotated[
        Path | None, typer.Argument(help="Folder of a model. Default: the model in the package.")
    ] = None,
    data: DataOption = [],  # noqa: B006
    split: Annotated[str, typer.Option(help="The part to measure: train, dev or test.")] = "test",
    sample: Annotated[
        int | None, typer.Option(min=1, help="Measure on this many random photos of the split.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seeds the choice of --sample.")] = 0,
    work: Annotated[Path | None, typer.Option(help="Folder for image features. Default: not kept.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
) -> None:
    """Measure image search, image annotation and sentence similarity as in the paper.

    Example: fishermix evaluate model/ --data flickr8k:DIR --split test
    """
    from fishermix.datasets import combine, open_dataset
    from fishermix.model.model import ImageTextModel
    from fishermix.storage import write_atomically

    if not data:
        raise FishermixError("Name a data set, such as --data flickr8k:DIR.")
    expect_folder_of(json_file)
    dataset = combine([open_dataset(spec) for spec in data])
    part = dataset.sample(split, sample, seed) if sample else dataset.part(split)
    found = ImageTextModel.load(model).evaluate(part, work)
    _print_table(f"{dataset.name} {split}", found)
    if json_file:
        measured = {**found, "data": dataset.name, "split": split, "images": len(part)}
        write_atomically(json_file, (json.dumps(measured, indent=1) + "\n").encode())


def check_vectors_exist(vectors: Path) -> None:
    if not vectors.exists():
        raise FishermixError(
            f"There are no word vectors in {vectors}. Run `make word2vec`, or name yours with --vectors."
        )


def open_training_data(data: list[str], data_no_dev: list[str], data_only_train: list[str]) -> list[Dataset]:
    from fishermix.datasets import open_dataset

    sets = [open_dataset(spec) for spec in data]
    sets += [_dev_trained_on(open_dataset(spec)) for spec in data_no_dev]
    sets += [_without_dev(open_dataset(spec)) for spec in data_only_train]
    if not sets:
        raise FishermixError("Name at least one data set, such as --data flickr8k:DIR.")
    return sets


def _dev_trained_on(dataset: Dataset) -> Dataset:
    from dataclasses import replace

    splits = dataset.splits.copy()
    splits[splits == "dev"] = "train"
    return replace(dataset, splits=splits)


def _without_dev(dataset: Dataset) -> Dataset:
    return dataset.select((dataset.splits != "dev").nonzero()[0])


def _print_table(title: str, found: dict[str, dict[str, float]]) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = ("r@1", "r@5", "r@10", "median", "mean")
    table = Table("task", *columns, title=title, title_justify="left")
    for task, measures in found.items():
        table.add_row(task, *(f"{measures[column]:.1f}" for column in columns))
    Console().print(table)
