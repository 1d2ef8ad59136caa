"""`fishermix features`: the image vectors of a data set, on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.errors import FishermixError

FAILURES_SHOWN = 20


@app.command(
    epilog="Example: fishermix features flickr8k:~/flickr8k --view flip --out flickr8k-features",
)
def features(
    dataset: Annotated[
        str, typer.Argument(help="KIND:PATH, such as flickr8k:DIR or folder:DIR.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="The folder of the features; an earlier run there is continued.")],
    encoder: Annotated[
        str, typer.Option(help="A network's name (see `fishermix encoders list`) or an .onnx file.")
    ] = "efficientnet-lite2",
    view: Annotated[str, typer.Option(help="squeeze, flip, center or ten-crop.")] = "squeeze",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads to use; all cores if not given.", show_default=False)
    ] = None,
    max_pixels: Annotated[
        int | None,
        typer.Option(min=1, help="Refuse larger images; follows from the memory.", show_default=False),
    ] = None,
) -> None:
    """Encode the photos of a data set, each different photo once.

    DIR then holds `features.npy`, one row an image in the order of `images.txt` (not-a-number where the
    image could not be read), and `features.sqlite`, from which the next run takes what has not changed. It
    may be interrupted at any moment and run again.
    """
    from fishermix.datasets import open_dataset
    from fishermix.vision.encoders import ImageEncoder
    from fishermix.vision.feature_cache import extract, write_table

    images = open_dataset(dataset)
    image_encoder = ImageEncoder(encoder, view=view, threads=threads, max_pixels=max_pixels)
    result = extract(images.image_paths, image_encoder, out)
    write_table(out, images.image_names, result.features)
    speed = f", {result.images_per_second:.1f} images/s" if result.encoded else ""
    typer.echo(
        f"{len(images.image_names):,} images of {result.features.shape[1]} numbers in {out}: "
        f"{result.encoded:,} encoded in {result.seconds:.1f} s{speed}, {len(result.failed):,} failed"
    )
    for name, reason in list(result.failed.items())[:FAILURES_SHOWN]:
        typer.echo(f"failed: {name}: {reason}", err=True)
    if len(result.failed) > FAILURES_SHOWN:
        typer.echo(f"failed: and {len(result.failed) - FAILURES_SHOWN:,} more", err=True)
    if images.image_names and len(result.failed) == len(images.image_names):
        raise FishermixError(f"none of the images of {dataset} could be read")
