"""`fishermix vectors`: import word vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from fishermix_photos.cli import App, app
from fishermix_photos.cli.common import say

vectors = App(help="Import word vectors.")
app.add_typer(vectors, name="vectors")


@vectors.command(
    "import", examples=["fishermix vectors import GoogleNews-vectors-negative300.bin.gz googlenews"]
)
def import_vectors(
    file: Annotated[
        Path, typer.Argument(help="A word2vec (binary or text) or GloVe (text) file, plain or gzipped.")
    ],
    out: Annotated[Path, typer.Argument(help="The folder to create.")],
    half: Annotated[
        bool, typer.Option("--half", help="Store float16: half the size, about three digits.")
    ] = False,
    skip_bad_words: Annotated[
        bool,
        typer.Option(
            "--skip-bad-words",
            help="Skip words that are empty, repeated, not UTF-8, not finite or possibly truncated.",
        ),
    ] = False,
) -> None:
    """Convert a file of word vectors into a folder that opens instantly."""
    from fishermix.text.word_vectors import WordVectors

    dtype: Literal["float16", "float32"] = "float16" if half else "float32"
    imported = WordVectors.load(file, dtype=dtype, errors="skip" if skip_bad_words else "raise")
    imported.save(out, dtype="float16" if half else None)
    say(f"{out}: {len(imported)} words of {imported.dimension} dimensions")
