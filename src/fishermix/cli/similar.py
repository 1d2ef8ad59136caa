"""`fishermix similar`: sentences that mean much the same."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import ModelOption, SentencesOption, open_model, say
from fishermix.errors import FishermixError


@app.command(epilog='Example: fishermix similar "a dog at the seaside" --sentences captions.txt -n 3')
def similar(
    sentence: Annotated[str, typer.Argument(help="A sentence.", show_default=False)],
    sentences: SentencesOption = None,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="At most this many sentences.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    model: ModelOption = None,
) -> None:
    """Rank sentences by how much they would describe the same photos as yours."""
    from fishermix.retrieval.sentences import SentencePool, read_sentences

    pool_of = read_sentences(sentences)
    loaded = open_model(model)
    point = loaded.encode_text([sentence])
    if not point.any():
        raise FishermixError(f"the model knows no word of '{sentence}': try other, plainer words")
    ranked = SentencePool(loaded, pool_of).nearest(point, number)[0]
    if as_json:
        say(json.dumps([{"sentence": found, "score": round(score, 6)} for found, score in ranked], indent=1))
        return
    for found, score in ranked:
        say(f"{score:.3f}  {found}")
