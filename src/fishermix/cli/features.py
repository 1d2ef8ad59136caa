"""`fishermix features`: compute the image features of a data set and keep them on disk."""

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
        str, typer.Argument(help="KIND:PATH, for example flickr8k:DIR or folder:DIR.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Output folder; an earlier run there is resumed.")],
    encoder: Annotated[
        str, typer.Option(help="Name of a network (see `fishermix encoders list`) or path of an .onnx file.")
    ] = "efficientnet-lite2",
    view: Annotated[
        str, typer.Option(help="Crops of each photo: squeeze, flip, center or ten-crop.")
    ] = "squeeze",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of threads. Default: all cores.", show_default=False)
    ] = None,
    max_pixels: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Reject images with more pixels than this. Default: depends on RAM.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Compute the image features of a data set.

    The output folder contains `features.npy`, with one row per image in the order of `images.txt` (NaN if
    the image could not be read), and `features.sqlite`, a cache: the next run encodes only new and changed
    photos.
    You can interrupt the command at any time and run it again.
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
        f"{len(images.image_names):,} images with {result.features.shape[1]} features each in {out}: "
        f"{result.encoded:,} encoded in {result.seconds:.1f} s{speed}, {len(result.failed):,} failed"
    )
    for name, reason in list(result.failed.items())[:FAILURES_SHOWN]:
        typer.echo(f"failed: {name}: {reason}", err=True)
    if len(result.failed) > FAILURES_SHOWN:
        typer.echo(f"failed: and {len(result.failed) - FAILURES_SHOWN:,} more", err=True)
    if images.image_names and len(result.failed) == len(images.image_names):
        raise FishermixError(f"No image of {dataset} could be read.")
