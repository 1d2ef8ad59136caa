"""`fishermix explain`: why a photo matches a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import (
    MaxPixelsOption,
    ModelOption,
    check_photo,
    open_model,
    say,
    tell,
    tell_unknown_words,
)


@app.command(epilog='Example: fishermix explain "two dogs run on a beach" photo.jpg')
def explain(
    sentence: Annotated[str, typer.Argument(help="A sentence.", show_default=False)],
    photo: Annotated[Path, typer.Argument(help="A photo.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also print the contributions of the word mixture.")
    ] = False,
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Show how much each word of a sentence contributes to its score with a photo.

    A word contributes what the score would lose without it. Dates are left out; sentences that the query
    subtracts are listed with their own scores.
    With --verbose, the contributions of the mixture's components and of the transformer are printed too; they
    and the hubness correction add up to the score.
    """
    from fishermix.retrieval.explain import Explainer
    from fishermix.retrieval.query import encode_sentence, split_sentences, suggest_words
    from fishermix.vision.images import check_header

    check_photo(photo)
    loaded = open_model(model)
    # Mistakes are reported before the image network is opened, which takes seconds.
    wanted, subtracted = split_sentences(sentence)
    unknown = [word for text in (wanted, *subtracted) for word in encode_sentence(text, loaded)[1]]
    check_header(photo)
    if wanted != sentence:
        tell(
            f"Explaining the words that are wanted, whose score is that of a search for them alone: {wanted}."
        )
    tell_unknown_words(unknown, loaded)
    for remark in suggest_words(unknown, loaded):
        tell(remark)
    explanation = Explainer(loaded).explain(wanted, loaded.encode_images([photo])[0], subtracted)
    if as_json:
        say(json.dumps(explanation.as_json(), indent=1))
        return
    for line in format_explanation(explanation, verbose):
        say(line)


def format_explanation(explanation, verbose: bool = False) -> list[str]:
    """An explanation as lines of text; `verbose` adds the terms that add up to the score."""
    widest = max(len(part.word) for part in explanation.words)
    most = max(1e-6, *(abs(part.drop) for part in explanation.words))
    lines = [f"score {explanation.score:.3f}", "", "words: what the score would lose without each"]
    for part in explanation.words:
        bar = ("█" if part.drop > 0 else "░") * round(20 * abs(part.drop) / most)
        bar = "not in the vocabulary" if part.word in explanation.out_of_vocabulary else bar
        lines.append(f"  {part.word:<{widest}}  {part.drop:+.3f}  {bar}".rstrip())
    if explanation.subtracted:
        lines += ["", "subtracted by the query: the score of each alone"]
        lines += [f"  {part.score:+.3f}  {part.sentence}" for part in explanation.subtracted]
    if not verbose:
        return lines
    if explanation.components:
        lines += ["", "components: what each contributes to the score"]
        for component in explanation.components:
            similar = f" (similar words: {', '.join(component.near)})" if component.near else ""
            lines.append(f"  {component.part:+.3f}  {', '.join(component.words)}{similar}")
        lines.append(f"  {explanation.rest:+.3f}  all other components")
    if explanation.transformer:
        lines.append(f"  {explanation.transformer:+.3f}  the sentence as a whole, read by the transformer")
    if explanation.hubness:
        many = "many" if explanation.hubness < 0 else "few"
        lines += [
            f"  {explanation.hubness:+.3f}  hubness correction: photo and sentence are close to {many} others"
        ]
    return lines
