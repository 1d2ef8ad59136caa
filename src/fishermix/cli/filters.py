"""The options of a search that choose photos by date, folder, camera, place and shape."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class SortBy(StrEnum):
    score = "score"
    date = "date"


AfterOption = Annotated[
    str | None,
    typer.Option("--after", metavar="DATE", help="Only photos taken on this date or later: 2019-07-14."),
]
BeforeOption = Annotated[
    str | None,
    typer.Option("--before", metavar="DATE", help="Only photos taken before this date: 2020, 2020-06."),
]
InOption = Annotated[
    str | None, typer.Option("--in", metavar="NAME", help="Only photos in folders of this name.")
]
CameraOption = Annotated[
    str | None,
    typer.Option("--camera", metavar="NAME", help="Only photos of cameras whose name contains this."),
]
NearOption = Annotated[
    str | None,
    typer.Option("--near", metavar="LAT,LON,KM", help="Only photos taken near a place: 52.5,13.4,10km."),
]
PortraitOption = Annotated[
    bool | None,
    typer.Option("--portrait/--landscape", help="Only photos that are higher than wide, or wider than high."),
]
SortOption = Annotated[
    SortBy,
    typer.Option("--sort", help="score: best first. date: only photos that may be right, newest first."),
]
