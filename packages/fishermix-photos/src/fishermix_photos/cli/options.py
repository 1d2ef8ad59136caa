"""The options and arguments of the commands: each is described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fishermix_photos.cli.common import set_max_pixels

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
Html = Annotated[
    Path | None,
    Option(metavar="FILE", help="Also write a contact sheet: one HTML file with the photos in it."),
]

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
ReadText = Annotated[
    bool,
    Option(
        "--text",
        help="Also read the text in photos, in the background: a second per photo. Needs "
        "fishermix-photos\\[text].",
    ),
]
Open = Annotated[bool, Option("--open", help="Open the page in your browser.")]
