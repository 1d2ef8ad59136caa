"""`fishermix reproduce`: the paper's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import expect_folder_of, tell
from fishermix.cli.train import RECIPE_HELP, expect_vectors
from fishermix.errors import FishermixError


@app.command()
def reproduce(
    data: Annotated[
        str,
        typer.Argument(help="flickr8k:DIR, flickr30k:DIR, pascal1k:DIR, coco:DIR, karpathy:… or folder:DIR"),
    ],
    encoder: Annotated[
        str | None,
        typer.Option(
            help="NAME[,NAME]: networks side by side (the paper's: vgg19, overfeat); else the recipe's."
        ),
    ] = None,
    rows: Annotated[str, typer.Option(help="Rows, separated by commas.")] = "mean,gmm,lmm,hglmm,gmm+hglmm",
    repeats: Annotated[
        int | None, typer.Option(help="Random splits; the paper's number if left out.")
    ] = None,
    recipe: Annotated[str, typer.Option(help=RECIPE_HELP)] = "paper",
    vectors: Annotated[Path, typer.Option(help="Word vectors.")] = Path(".cache/word2vec"),
    test_images: Annotated[
        int | None, typer.Option(help="Rank among so many test images (COCO: 1000).")
    ] = None,
    work: Annotated[Path, typer.Option(help="Folder of finished stages and rows.")] = Path(
        ".cache/reproduce"
    ),
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows to this file.")] = None,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", help="Write the whole table to this file.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a page with plots to this file.")
    ] = None,
) -> None:
    """Measure every row of the paper's tables and print them beside the published ones. Resumes by row.

    Example: fishermix reproduce flickr8k:DIR --recipe best --html table.html
    """
    from rich.console import Console

    from fishermix.datasets import open_dataset
    from fishermix.experiments import reproduce as run
    from fishermix.experiments import tables
    from fishermix.model.recipe import recipe_named
    from fishermix.storage import write_atomically
    from fishermix.text.vectors import WordVectors

    if repeats is not None and repeats < 1:
        raise FishermixError("--repeats must be at least 1")
    expect_folder_of(json_file, csv_file, html_file)
    chosen = recipe_named(recipe)
    if encoder:
        chosen = chosen.with_(encoders=tuple(encoder.split(",")))
    names = rows.split(",")
    for row in names:
        chosen.with_(row=row)
    dataset = open_dataset(data)
    if repeats is not None and repeats > dataset.repeats:
        tell(f"{dataset.name} has its splits: measured {dataset.repeats} times, not {repeats}")
    expect_vectors(vectors)
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
        typer.echo(f"{result.row}: {seconds}", err=True)
    Console(width=170).print(tables.as_text(kind, results))


def table_kind(name: str, test_images: int | None) -> str:
    """Which published table stands beside a data set of this name."""
    for kind in ("flickr8k", "flickr30k", "pascal1k"):
        if kind in name:
            return kind
    if "coco" in name:
        return "coco-1k" if test_images == 1000 else "coco-5k"
    return name
