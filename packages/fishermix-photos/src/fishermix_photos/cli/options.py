"""The options and arguments of the commands: each is described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fishermix_photos.cli.common import set_max_pixels

# Written out, because `--help` does not wait for the recipes and their schema.
RECIPE_HELP = "One of paper, best, shipped."
PAPER_VARIANTS = ("mean", "gmm", "lmm", "hglmm", "gmm+hglmm")
VARIANT_HELP = ", ".join(PAPER_VARIANTS)
DATA_HELP = (
    "A data set: flickr8k:DIR, flickr30k:DIR, pascal1k:DIR, coco:DIR, karpathy:FILE.json:IMAGES_DIR or "
    "folder:DIR."
)
ADDED = "Folders of photos, which are added to your library."


# The library and the model

Folders = Annotated[list[Path], Argument(metavar="FOLDER", help="Folders of photos.")]
KnownFolders = Annotated[
    list[Path] | None, Argument(metavar="FOLDER", help="Folders of the library. Default: all of them.")
]
ServedFolders = Annotated[
    list[Path] | None, Argument(metavar="FOLDER", help=f"{ADDED} Default: the whole library.")
]
ComparedFolders = Annotated[
    list[Path] | None,
    Argument(
        metavar="FOLDER",
        help=f"{ADDED} Default: the current folder if it is in your library, otherwise the whole library.",
    ),
]
Photos = Annotated[
    list[Path], Argument(metavar="PHOTO", help="Photo files, or folders of them.", readable=False)
]
Model = Annotated[
    Path | None, Option("--model", help="Folder of a trained model. Default: the model in the package.")
]
Library = Annotated[
    str | None,
    Option(
        "--library",
        metavar="PLACE",
        help="Use the library in this place. Default: the one in your data folder.",
    ),
]
MaxPixels = Annotated[
    int | None,
    Option(
        "--max-pixels",
        metavar="NUMBER",
        min=1,
        callback=set_max_pixels,
        help="Reject images with more pixels than this. Default: depends on RAM.",
    ),
]
Update = Annotated[
    bool, Option("--update/--no-update", help="First look for new, changed and deleted photos.")
]
Json = Annotated[bool, Option("--json", help="Print JSON.")]
Null = Annotated[
    bool, Option("-0", "--null", help="Print paths only, each ending in a zero byte, for xargs -0.")
]

# Search

Query = Annotated[
    list[str],
    Argument(
        metavar="QUERY... [FOLDER...]",
        help="A sentence or a photo, or several with + and - between them; 2:dog counts twice. "
        "Then the folders to search, which are added to your library. Without one, the current folder is "
        "searched if it is in your library, otherwise the whole library.",
    ),
]
Number = Annotated[
    int | None,
    Option(
        "-n",
        "--number",
        min=1,
        help="Print at most this many photos. Default: 10, or all if the query is only a date or a name.",
    ),
]
Files = Annotated[bool, Option("-f", "--files", help="Print paths only, for pipes.")]
MinScore = Annotated[
    str | None,
    Option(
        metavar="SCORE|auto",
        help="Print only photos with at least this score. auto: only likely photos and maybes.",
    ),
]
After = Annotated[
    str | None, Option(metavar="DATE", help="Only photos taken on this date or later: 2019-07-14.")
]
Before = Annotated[
    str | None, Option(metavar="DATE", help="Only photos taken before this date: 2020, 2020-06.")
]
In = Annotated[
    str | None,
    Option("--in", metavar="NAME", help="Only photos in folders with these words in their names: peru."),
]
Camera = Annotated[
    str | None, Option(metavar="NAME", help="Only photos taken with a camera whose name contains this.")
]
Near = Annotated[
    str | None,
    Option(
        metavar="PLACE",
        help="Only photos taken near a city, in a country or around a point: Lima; Lima,50km; Peru; "
        "52.5,13.4,10km. Names of places: GeoNames, CC BY 4.0.",
    ),
]
Html = Annotated[
    Path | None,
    Option(metavar="FILE", help="Also write a contact sheet: one HTML file with the photos in it."),
]

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

# Serve

Port = Annotated[int, Option(min=1, max=65535, help="Port to listen on.")]
Host = Annotated[
    str,
    Option(
        help="Address to listen on. 0.0.0.0: every device on your network that has the token can connect."
    ),
]
Token = Annotated[
    bool,
    Option("--token", help="Require a token on this machine, too. With --host, it is always required."),
]
Open = Annotated[bool, Option("--open", help="Open the page in your browser.")]

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
Classes = Annotated[
    Path | None, Option(help="The names of the network's classes, one per line, so that it keeps them.")
]
Cut = Annotated[
    str,
    Option(help="Activations after which the network learns. Default: those of EfficientNet-lite2."),
]
