"""`fishermix similar`: rank sentences by their similarity to a sentence."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import ModelOption, SentencesOption, open_model, say, tell_unknown_words


@app.command(epilog='Example: fishermix similar "a dog at the seaside" --sentences captions.txt -n 3')
def similar(
    sentence: Annotated[str, typer.Argument(help="A sentence.", show_default=False)],
    sentences: SentencesOption = None,
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="Print at most this many sentences.")
    ] = 10,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list of sentences and scores.")
    ] = False,
    model: ModelOption = None,
) -> None:
    """Rank sentences by whether they describe the same photos as yours.

    The score is the cosine in the joint space. A sentence scores 1 with itself.
    """
    from fishermix.retrieval.query import encode_sentence
    from fishermix.retrieval.sentences import SentencePool, read_sentences

    candidates = read_sentences(sentences) if sentences else None
    loaded = open_model(model)
    point, unknown = encode_sentence(sentence, loaded)
    tell_unknown_words(unknown, loaded)
    ranked = SentencePool(loaded, candidates).rank_for_sentences(point[None], number)[0]
    if as_json:
        say(json.dumps([{"sentence": found, "score": round(score, 6)} for found, score in ranked], indent=1))
        return
    for found, score in ranked:
        say(f"{score:.3f}  {found}")
