"""`fishermix vectors`: import and inspect word vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.errors import FishermixError

vectors = typer.Typer(no_args_is_help=True, help="Import and inspect word vectors.")
app.add_typer(vectors, name="vectors")


@vectors.command("import")
def import_vectors(
    file: Annotated[
        Path, typer.Argument(help="A word2vec (binary or text) or GloVe (text) file, plain or gzipped.")
    ],
    out: Annotated[Path, typer.Argument(help="The folder to create.")],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Read only this many words from the start.")
    ] = None,
    vocabulary: Annotated[
        Path | None, typer.Option(help="Keep only the words in this file, one per line.")
    ] = None,
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
    """Convert a file of word vectors into a folder that opens instantly.

    Example: fishermix vectors import GoogleNews-vectors-negative300.bin.gz googlenews
    """
    from fishermix.text.vectors import WordVectors

    wanted = None
    if vocabulary is not None:
        try:
            wanted = set(vocabulary.read_text("utf8").split("\n")) - {""}
        except (OSError, UnicodeDecodeError) as error:
            raise FishermixError(f"Cannot read {vocabulary} as UTF-8 text ({error}).") from error
    found = WordVectors.load(
        file,
        limit=limit,
        vocabulary=wanted,
        dtype="float16" if half else "float32",
        errors="skip" if skip_bad_words else "raise",
    )
    if not len(found):
        raise FishermixError(f"{file} has no word of {vocabulary}.")
    found.save(out, dtype="float16" if half else None)
    print(f"{out}: {len(found)} words of {found.dimension} dimensions")


@vectors.command()
def info(
    path: Annotated[Path, typer.Argument(help="An imported folder or a file of word vectors.")],
    word: Annotated[list[str] | None, typer.Option(help="Show the words most similar to this one.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Read an imported folder in full and compare its hash.")
    ] = False,
) -> None:
    """Show the size, the first words and the nearest neighbors of word vectors.

    Example: fishermix vectors info googlenews --word dog --check
    """
    from fishermix.text.vectors import WordVectors

    found = WordVectors.load(path)
    megabytes = found.vectors.nbytes / 1e6
    print(f"{len(found)} words of {found.dimension} dimensions, {found.vectors.dtype}, {megabytes:.1f} MB")
    print("first words:", " ".join(found.words[:10]))
    for query in word or []:
        near = ", ".join(f"{other} {cosine:.2f}" for other, cosine in found.most_similar(query))
        print(f"near {query}: {near}")
    if check:
        if not path.is_dir():
            raise FishermixError(
                f"{path} is a file, which is always read in full. --check is for imported folders."
            )
        WordVectors.verify(path)
        print("The hash matches.")
