"""`fishermix dataset`: show what a captioned image set contains."""

from __future__ import annotations

import typer

from fishermix.cli import app

datasets = typer.Typer(no_args_is_help=True, help="Inspect captioned image sets.")
app.add_typer(datasets, name="dataset")


@datasets.command()
def info(
    data: str = typer.Argument(
        help="{flickr8k,flickr30k,pascal1k,coco,folder}:DIR, or karpathy:FILE.json:IMAGES_DIR."
    ),
    train: str = typer.Option(
        "paper", help="Training images of Flickr8K: paper (6,091) or official (6,000)."
    ),
) -> None:
    """Print the number of images and sentences of each split, and all problems.

    Example: fishermix dataset info flickr8k:~/flickr8k
    """
    import numpy as np

    from fishermix.datasets import open_dataset

    dataset = open_dataset(data, train=train)
    per_image = np.bincount(dataset.image_of, minlength=len(dataset))
    print(f"{dataset.name}: {len(dataset)} images, {len(dataset.sentences)} sentences")
    print(f"sentences per image: {per_image.min()} to {per_image.max()}, mean {per_image.mean():.2f}")
    for split, images in dataset.counts().items():
        sentences = per_image[dataset.splits == split].sum()
        print(f"{split or 'in no split'}: {images} images, {sentences} sentences")
    if dataset.protocol:
        print(f"No official splits: this is the first of the paper's {dataset.repeats} random splits.")
    for problem in dataset.problems:
        print(f"problem: {problem}")
