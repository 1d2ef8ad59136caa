"""`fishermix demo`: search, captions and explanations on a few photos."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import MaxPixelsOption, ModelOption, open_index, open_model, say
from fishermix.cli.explain import format_explanation
from fishermix.errors import FishermixError

if TYPE_CHECKING:
    import numpy as np

    from fishermix.model.model import ImageTextModel

# Photos that are part of installed packages.
PICTURES = (
    ("skimage.data", "astronaut.png"),
    ("skimage.data", "chelsea.png"),
    ("skimage.data", "coffee.png"),
    ("skimage.data", "rocket.jpg"),
    ("skimage.data", "motorcycle_left.png"),
    ("skimage.data", "camera.png"),
    ("skimage.data", "clock_motion.png"),
    ("skimage.data", "hubble_deep_field.jpg"),
    ("skimage.data", "moon.png"),
    ("skimage.data", "coins.png"),
    ("skimage.data", "page.png"),
    ("skimage.data", "grass.png"),
    ("skimage.data", "brick.png"),
    ("sklearn.datasets.images", "china.jpg"),
    ("sklearn.datasets.images", "flower.jpg"),
)
PHOTOS_ON_THE_SHEET = 12
QUERIES = (
    "a cat looks at the camera",
    "a cup of coffee on a table",
    "a motorcycle in a garage",
    "a close up of a flower",
)
QUERIES_FOR_ANY_FOLDER = ("a dog runs on a beach", "people sit around a table", "a child plays outside")


@app.command(epilog="Examples: fishermix demo · fishermix demo ~/Pictures --out demo-out")
def demo(
    photos: Annotated[
        Path | None,
        typer.Argument(help="A folder of photos. Default: photos that are part of installed packages."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the index and the contact sheet.")] = Path(
        "demo-out"
    ),
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Try the commands on a few photos: search, caption, explain, and a contact sheet."""
    from fishermix.retrieval.contact_sheet import render_contact_sheet, write_contact_sheet
    from fishermix.retrieval.explain import Explainer
    from fishermix.retrieval.index import MAYBE

    out.mkdir(parents=True, exist_ok=True)
    folder = photos or copy_packaged_photos(out / "photos")
    queries = QUERIES_FOR_ANY_FOLDER if photos else QUERIES
    loaded = open_model(model)
    cards = []
    with open_index(folder, str(out / "index"), loaded) as index:
        say(f"{index.store.summary().photos:,} photos in {folder}")
        found = [index.search(query, 3) for query in queries]
        if not any(found):
            raise FishermixError(f"There are no photos in {folder}. Name a folder that contains some.")
        for query, hits in zip(queries, found):
            say(f'\nfishermix search "{query}"')
            judge = index.judge(index.encode_query(query))
            chances = judge.find_probabilities([hit.score for hit in hits]) if judge else []
            if len(chances) and max(chances) < MAYBE:
                say("  Nothing here looks like this. The nearest:")
            for hit in hits:
                say(f"  {hit.score:.3f}  {hit.path}")
        query, best = max(zip(queries, found), key=lambda pair: pair[1][0].score)
        for hit in index.search(query, n=PHOTOS_ON_THE_SHEET):
            cards.append((index.path(hit), hit.path, hit.score, _describe_if_sure(loaded, index.point(hit))))
        sure = next(((name, caption) for _, name, _, caption in cards if caption), None)
        if sure:
            say(f"\nfishermix caption {sure[0]}\n  {sure[1]}")
        say(f'\nfishermix explain "{query}" {best[0].path}')
        for line in format_explanation(Explainer(loaded).explain(query, index.point(best[0]))):
            say(f"  {line}".rstrip())
    sheet = out / "contact-sheet.html"
    write_contact_sheet(sheet, render_contact_sheet(query, cards, f"The best matches in {folder}"))
    say(f"\nWrote the contact sheet {sheet}. Next, try your own photos:")
    program = "fishermix" if shutil.which("fishermix") else Path(sys.argv[0])  # in a folder that no PATH has
    say(f'  {program} search "two dogs run on a beach" ~/Pictures')
    say(f"  {program} serve ~/Pictures --open")


def _describe_if_sure(model: ImageTextModel, point: np.ndarray) -> str:
    """The caption of a photo, or nothing if there is no captioner or it is unsure."""
    if model.captioner is None:
        return ""
    found = model.describe_points(point[None])[0]
    return "" if found.unsure else found.sentence


def copy_packaged_photos(target: Path) -> Path:
    """Copy photos that are part of installed packages into a folder; nothing is downloaded."""
    from importlib.resources import as_file, files

    target.mkdir(parents=True, exist_ok=True)
    copied = 0
    for package, name in PICTURES:
        try:
            source = files(package).joinpath(name)
            with as_file(source) as file:
                data = file.read_bytes()
        except (ModuleNotFoundError, FileNotFoundError):
            continue
        copied += 1
        if not (target / name).exists():
            (target / name).write_bytes(data)
    if not copied:
        raise FishermixError("No installed package contains photos. Name a folder of photos.")
    return target
