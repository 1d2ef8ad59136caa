"""`fishermix annotate`: rank sentences for photos."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import (
    MaxPixelsOption,
    ModelOption,
    SentencesOption,
    check_photo,
    open_model,
    say,
    tell,
)
from fishermix.errors import FishermixError


@app.command(
    epilog="Examples: fishermix annotate photo.jpg · "
    "fishermix annotate *.jpg --sentences captions.txt -n 3 --json"
)
def annotate(
    photos: Annotated[
        list[Path],
        typer.Argument(help="One or more photos.", metavar="PHOTO...", show_default=False, readable=False),
    ],
    sentences: SentencesOption = None,
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="Print this many sentences per photo.")
    ] = 5,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list with one entry per photo.")
    ] = False,
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Rank sentences for photos, with their scores, best first.

    Photos that cannot be read are skipped and reported; the exit code is then 1.
    """
    from fishermix.retrieval.sentences import SentencePool, read_sentences

    candidates = read_sentences(sentences) if sentences else None
    loaded = open_model(model)
    pool = SentencePool(loaded, candidates)
    found, unreadable = [], 0
    for photo in photos:
        try:
            check_photo(photo)
            found.append((photo, pool.rank_for_photos(loaded.encode_images([photo]), number)[0]))
        except FishermixError as error:
            if len(photos) == 1:
                raise
            unreadable += 1
            tell(str(error))
    if as_json:
        listed = [
            {"path": str(photo), "sentences": [{"sentence": s, "score": round(x, 6)} for s, x in ranked]}
            for photo, ranked in found
        ]
        say(json.dumps(listed, indent=1))
    else:
        for photo, ranked in found:
            if len(photos) > 1:
                say(str(photo))
            for sentence, score in ranked:
                say(f"{score:.3f}  {sentence}")
    if unreadable:
        raise FishermixError(f"{unreadable} of {len(photos)} photos could not be read.")
