"""The options of the commands that train and measure: each is described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fishermix_photos.cli.options import Model as Model
from typer import Option

# Written out, because `--help` does not wait for the recipes and their schema.
RECIPE_HELP = "One of paper, best, shipped."
PAPER_VARIANTS = ("mean", "gmm", "lmm", "hglmm", "gmm+hglmm")
VARIANT_HELP = ", ".join(PAPER_VARIANTS)
DATA_HELP = (
    "A data set: flickr8k:DIR, flickr30k:DIR, pascal1k:DIR, coco:DIR, folder:DIR or "
    "karpathy:FILE.json:IMAGES_DIR."
)

# Training

Data = Annotated[
    list[str],
    Option("--data", metavar="KIND:PATH", help=f"{DATA_HELP} Can be given several times."),
]
OnlyTrain = Annotated[
    list[str],
    Option(metavar="KIND:PATH", help="Like --data, but its validation photos are not used at all."),
]
Recipe = Annotated[str, Option(help=RECIPE_HELP)]
Changes = Annotated[
    list[str],
    Option(
        "--set",
        metavar="NAME=VALUE",
        help="Change a field of the recipe: encoders=resnet50, mixture_components=10, "
        "transformer=none, transformer_weight=1, n_components=256, … Can be given several times.",
    ),
]
Vectors = Annotated[
    Path, Option(help="Word vectors: a file, or a folder written by `fishermix vectors import`.")
]
Work = Annotated[
    Path | None,
    Option("--work", help="Folder that keeps image features for the next run. Default: not kept."),
]
Stages = Annotated[
    Path | None,
    Option("--work", help="Folder for finished stages. Default: the folder that is written, plus .work."),
]
Words = Annotated[
    int | None,
    Option(
        min=1,
        help="Vocabulary size: all caption words, then the most frequent others. Default: all words of the "
        "vectors.",
    ),
]
Half = Annotated[bool, Option("--half", help="Store vectors and weights in half precision.")]
Out = Annotated[Path, Option("--out", help="The folder to write the model to.")]
Split = Annotated[str, Option(help="The part to measure: train, dev or test.")]
JsonFile = Annotated[Path | None, Option("--json", help="Add the results to this JSON file.")]

# Reproduce

Variants = Annotated[
    str | None,
    Option(
        help=f"Variants to measure, separated by commas: {VARIANT_HELP}, or families such as "
        "gaussian/laplace. Default: the first five.",
    ),
]
TestImages = Annotated[
    int | None, Option(help="Rank among this many random test images (COCO: 1000). Default: all.")
]
Repeats = Annotated[int | None, Option(min=1, help="Number of random splits. Default: the paper's.")]
Seeds = Annotated[
    int,
    Option(min=1, help="Measure this many seeds, from --seed on, and print means and deviations."),
]
Seed = Annotated[int, Option(min=0, help="Seeds whitening, mixtures and the hubness banks.")]
Family = Annotated[
    list[str],
    Option(
        metavar="MODULE:CLASS",
        help="A custom family of an installed module, or of a file (FILE.py:CLASS). Its name can be "
        "part of a variant; without --variants, two variants with it are added. Can be given several times.",
    ),
]

# Tune a network

Share = Annotated[
    list[float],
    Option(help="How often photos of a data set are drawn, once per set. Default: by their number."),
]
Weight = Annotated[
    list[float],
    Option(
        help="How much the sentences of a set count, once per set. Default: 1. Sets with less are not used "
        "to solve the joint space."
    ),
]
OtherVectors = Annotated[
    Path | None,
    Option(
        "--vectors",
        help="Word vectors to take the vocabulary from: those of the model with more words. "
        "Default: the words that the model has.",
    ),
]
Copies = Annotated[
    list[int],
    Option(
        help="In how many copies of changing size and compression the photos of a set are met, once per set. "
        "Default: 0, as they are."
    ),
]
Classes = Annotated[
    Path | None, Option(help="The names of the network's classes, one per line, so that it keeps them.")
]
Cut = Annotated[
    str,
    Option(help="Activations after which the network learns. Default: those of EfficientNet-lite2."),
]
