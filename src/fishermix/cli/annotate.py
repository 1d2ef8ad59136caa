"""`fishermix annotate`: the sentences that fit a photo best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import ModelOption, SentencesOption, open_model, photo_files, say, tell
from fishermix.errors import FishermixError


@app.command(
    epilog="Examples: fishermix annotate photo.jpg · "
    "fishermix annotate *.jpg --sentences captions.txt -n 3 --json"
)
def annotate(
    photos: Annotated[
        list[Path], typer.Argument(help="Photos.", metavar="PHOTO...", show_default=False, readable=False)
    ],
    sentences: SentencesOption = None,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="Sentences a photo.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list, an entry a photo.")] = False,
    model: ModelOption = None,
) -> None:
    """Rank sentences for photos, best first, with their scores.

    Exit code 1 if one of the photos cannot be read; the others are done all the same.
    """
    from fishermix.retrieval.sentences import SentencePool, read_sentences

    pool_of = read_sentences(sentences)
    loaded = open_model(model)
    pool = SentencePool(loaded, pool_of)
    found, unreadable = [], 0
    for photo in photos:
        try:
            found.append((photo, pool.for_photos(loaded.encode_images(photo_files([photo])), number)[0]))
        except FishermixError as error:
            unreadable += 1
            tell(f"{photo}: {error}")
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
        raise FishermixError(f"{unreadable} of {len(photos)} photos could not be read")
