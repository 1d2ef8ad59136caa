"""`fishermix explain`: why a photo matches a sentence."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import ModelOption, open_model, photo_files, say


@app.command(epilog='Example: fishermix explain "two dogs run on a beach" photo.jpg')
def explain(
    sentence: Annotated[str, typer.Argument(help="A sentence.", show_default=False)],
    photo: Annotated[Path, typer.Argument(help="A photo.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
    model: ModelOption = None,
) -> None:
    """Say which words, and which components of the mixtures, carry the match of a sentence and a photo.

    A word counts by what the score would lose without it. A component is a group of kindred words; the parts
    of all components add up to the score, with what is taken off where sentence and photo are near to much.
    """
    from fishermix.retrieval.explain import Explainer

    photo_files([photo])
    loaded = open_model(model)
    explanation = Explainer(loaded).explain(sentence, loaded.encode_images([photo])[0])
    if as_json:
        say(json.dumps(asdict(explanation), indent=1))
        return
    for line in explanation_lines(explanation):
        say(line)


def explanation_lines(explanation) -> list[str]:
    """An explanation as lines of text."""
    widest = max(len(part.word) for part in explanation.words)
    most = max(1e-6, *(abs(part.drop) for part in explanation.words))
    lines = [f"score {explanation.score:.3f}", "", "words: what the score loses without them"]
    for part in explanation.words:
        bar = ("█" if part.drop > 0 else "░") * round(20 * abs(part.drop) / most)
        lines.append(f"  {part.word:<{widest}}  {part.drop:+.3f}  {bar}".rstrip())
    if explanation.components:
        lines += ["", "components: what each adds to the score"]
        for component in explanation.components:
            kin = f" (kin of {', '.join(component.near)})" if component.near else ""
            lines.append(f"  {component.part:+.3f}  {', '.join(component.words)}{kin}")
        lines.append(f"  {explanation.rest:+.3f}  all others")
    if explanation.hubness:
        many = "many" if explanation.hubness < 0 else "few"
        lines += ["", f"{explanation.hubness:+.3f}  because photo and sentence are near to {many} others"]
    return lines
