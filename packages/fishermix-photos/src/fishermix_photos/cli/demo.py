"""`fishermix demo`: search, captions and explanations on a few photos."""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from fishermix.errors import FishermixError

from fishermix_photos.cli import app
from fishermix_photos.cli.common import open_library, say
from fishermix_photos.cli.describe import format_caption, format_explanation
from fishermix_photos.photos.formats import count_photos

# Photos that are part of installed packages.
PACKAGED_PHOTOS = {
    "skimage.data": (
        *("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png", "camera.png"),
        *("clock_motion.png", "hubble_deep_field.jpg", "moon.png", "coins.png", "page.png", "grass.png"),
        "brick.png",
    ),
    "sklearn.datasets.images": ("china.jpg", "flower.jpg"),
}
QUERIES = (
    "a cat looks at the camera",
    "a cup of coffee on a table",
    "a motorcycle in a garage",
    "a close up of a flower",
)


@app.command(examples=["fishermix demo --out demo-out"])
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the photos and their library.")] = Path("demo-out"),
) -> None:
    """Try search, captions and explanations on a few sample photos."""
    from fishermix_photos.search.results import Query
    from fishermix_photos.search.terms import parse_query

    out.mkdir(parents=True, exist_ok=True)
    folder = copy_packaged_photos(out / "photos")
    with open_library(str(out / "library"), None) as library:
        library.update([folder])
        say(f"{count_photos(library.count())} in {folder}")
        for query in QUERIES:
            results = library.search(Query(parse_query(query), n=3))
            say("", f'fishermix search "{query}"', *([f"  {results.verdict}"] if results.verdict else []))
            say(*(f"  {photo.score:.3f}  {photo.relative}" for photo in results.photos))
        best = results.photos[0]
        if library.model.captioner is not None:
            say("", f"fishermix caption {best.relative}", f"  {format_caption(library.describe(best.id))}")
        lines = format_explanation(library.explain(query, best.id))
        say("", f'fishermix explain "{query}" {best.relative}', *(f"  {line}".rstrip() for line in lines))
    program = "fishermix" if shutil.which("fishermix") else Path(sys.argv[0])  # in a folder that no PATH has
    say(
        "",
        "Next, try your own photos:",
        f'  {program} search "two dogs run on a beach" ~/Pictures',
        f"  {program} serve ~/Pictures --open",
    )


def copy_packaged_photos(target: Path) -> Path:
    """Copy photos that are part of installed packages into a folder; nothing is downloaded."""
    from importlib.resources import files

    target.mkdir(parents=True, exist_ok=True)
    for package, names in PACKAGED_PHOTOS.items():
        for name in names:
            with suppress(ModuleNotFoundError, FileNotFoundError):
                data = files(package).joinpath(name).read_bytes()
                if not (target / name).exists():
                    (target / name).write_bytes(data)
    if not any(target.iterdir()):
        raise FishermixError(
            "No installed package contains photos. Install scikit-image.", code="missing_package"
        )
    return target
