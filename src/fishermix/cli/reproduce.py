"""`fishermix reproduce`: the paper's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import expect_folder_of, tell
from fishermix.cli.train import RECIPE_HELP, VARIANT_HELP, check_vectors_exist
from fishermix.errors import FishermixError


@app.command()
def reproduce(
    data: Annotated[
        str,
        typer.Argument(
            help="A data set: flickr8k:DIR, flickr30k:DIR, pascal1k:DIR, coco:DIR, karpathy:… or folder:DIR."
        ),
    ],
    encoder: Annotated[
        str | None,
        typer.Option(
            help="NAME[,NAME]: image networks; their vectors are concatenated. The paper used vgg19 and "
            "overfeat. Default: the recipe's."
        ),
    ] = None,
    variants: Annotated[
        str,
        typer.Option(
            "--variants", "--rows", help=f"Variants to measure, separated by commas, out of {VARIANT_HELP}."
        ),
    ] = "mean,gmm,lmm,hglmm,gmm+hglmm",
    mixture_components: Annotated[
        int | None,
        typer.Option("--components", min=1, help="Components of each mixture. Default: the recipe's."),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Number of random splits. Default: the paper's.")
    ] = None,
    recipe: Annotated[str, typer.Option(help=RECIPE_HELP)] = "paper",
    vectors: Annotated[Path, typer.Option(help="Word vectors.")] = Path(".cache/word2vec"),
    test_images: Annotated[
        int | None, typer.Option(help="Rank among this many random test images (COCO: 1000). Default: all.")
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
    work: Annotated[Path, typer.Option(help="Folder for finished stages and variants.")] = Path(
        ".cache/reproduce"
    ),
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the results to this JSON file.")
    ] = None,
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", help="Write the table with the published figures to this CSV file."),
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a page with plots to this HTML file.")
    ] = None,
) -> None:
    """Measure the variants of the paper and print them next to the published tables.

    Finished variants are kept: run the same command again to resume after an interruption.

    Example: fishermix reproduce flickr8k:DIR --recipe best --html table.html
    """
    from rich.console import Console

    from fishermix.datasets import open_dataset
    from fishermix.experiments import reproduce as run
    from fishermix.experiments import tables
    from fishermix.model.recipe import find_recipe
    from fishermix.storage import write_atomically
    from fishermix.text.vectors import WordVectors

    if repeats is not None and repeats < 1:
        raise FishermixError("--repeats must be at least 1.")
    expect_folder_of(json_file, csv_file, html_file)
    chosen = find_recipe(recipe)
    if encoder:
        chosen = chosen.with_(encoders=tuple(encoder.split(",")))
    if mixture_components:
        chosen = chosen.with_(mixture_components=mixture_components)
    if transformer:
        chosen = chosen.with_(transformer=None if transformer == "none" else transformer)
    if transformer_weight is not None:
        chosen = chosen.with_(transformer_weight=transformer_weight)
    names = variants.split(",")
    for name in names:
        chosen.with_(variant=name)  # raises before the work begins
    dataset = open_dataset(data)
    if repeats is not None and repeats > dataset.repeats:
        tell(f"{dataset.name} has official splits; --repeats {repeats} is ignored")
    check_vectors_exist(vectors)
    kind = table_kind(dataset.name, test_images)
    results = []
    for result in run.reproduce(
        dataset, WordVectors.load(vectors), chosen, names, repeats, work, test_images
    ):
        results.append(result)
        if json_file:
            run.write_json(results, json_file)
        if csv_file:
            write_atomically(csv_file, tables.as_csv(kind, results).encode())
        if html_file:
            write_atomically(html_file, tables.as_page(kind, results).encode())
        seconds = ", ".join(f"{name} {value:.0f} s" for name, value in result.seconds.items())
        typer.echo(f"{result.variant}: {seconds}", err=True)
    Console(width=170).print(tables.as_text(kind, results))


def table_kind(name: str, test_images: int | None) -> str:
    """The published table to show next to a data set of this name."""
    for kind in ("flickr8k", "flickr30k", "pascal1k"):
        if kind in name:
            return kind
    if "coco" in name:
        return "coco-1k" if test_images == 1000 else "coco-5k"
    return name
