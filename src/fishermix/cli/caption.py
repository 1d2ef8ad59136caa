"""`fishermix caption`: write a new sentence for a photo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import MaxPixelsOption, ModelOption, check_photo, open_model, say, tell
from fishermix.errors import FishermixError


@app.command(epilog="Examples: fishermix caption photo.jpg · fishermix caption *.jpg --beam 1 --json")
def caption(
    photos: Annotated[
        list[Path],
        typer.Argument(help="Photo files.", metavar="PHOTO...", show_default=False, readable=False),
    ],
    beam: Annotated[int, typer.Option(min=1, help="Beam size; 1 is greedy search.")] = 16,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list with one entry per photo.")
    ] = False,
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Write a sentence for each photo.

    "(unsure)" after a sentence means that it matches the photo hardly better than a random caption would.
    The exit code is 1 if a photo could not be read; the other photos are still described.
    """
    if len(photos) == 1:
        check_photo(photos[0])
    loaded = open_model(model)
    written, unreadable = [], 0
    for photo in photos:
        try:
            check_photo(photo)
            found = loaded.describe_points(loaded.encode_images([photo]), beam=beam)[0]
        except FishermixError as error:
            if loaded.captioner is None or len(photos) == 1:
                raise
            unreadable += 1
            tell(str(error))
            continue
        judged = {"confidence": found.confidence, "unsure": found.unsure}
        written.append({"path": str(photo), "sentence": found.sentence, **judged})
        if not as_json:
            sentence = f"{found.sentence} (unsure)" if found.unsure else found.sentence
            say(f"{photo}: {sentence}" if len(photos) > 1 else sentence)
    if as_json:
        say(json.dumps(written, indent=1))
    if unreadable:
        raise FishermixError(f"{unreadable} of {len(photos)} photos could not be read.")
