"""`fishermix vectors`: import word vectors, and see what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.errors import FishermixError

vectors = typer.Typer(no_args_is_help=True, help="Word vectors: import them, and see what is in them.")
app.add_typer(vectors, name="vectors")


@vectors.command("import")
def import_vectors(
    file: Annotated[
        Path, typer.Argument(help="word2vec (binary or text) or GloVe (text), plain or gzipped.")
    ],
    out: Annotated[Path, typer.Argument(help="The folder to make.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many words.")] = None,
    vocabulary: Annotated[
        Path | None, typer.Option(help="Keep only the words in this file, one a line.")
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Store float16: half the size, three digits.")] = False,
    skip_bad_words: Annotated[
        bool,
        typer.Option(
            "--skip-bad-words",
            help="Leave out words that are empty, repeated, not UTF-8, not finite or perhaps cut off.",
        ),
    ] = False,
) -> None:
    """Turn a file of word vectors into a folder that opens at once.

    Example: fishermix vectors import GoogleNews-vectors-negative300.bin.gz googlenews
    """
    from fishermix.text.vectors import WordVectors

    wanted = None
    if vocabulary is not None:
        try:
            wanted = set(vocabulary.read_text("utf8").split("\n")) - {""}
        except (OSError, UnicodeDecodeError) as error:
            raise FishermixError(f"{vocabulary} cannot be read as UTF-8 text: {error}") from error
    found = WordVectors.load(
        file,
        limit=limit,
        vocabulary=wanted,
        dtype="float16" if half else "float32",
        errors="skip" if skip_bad_words else "raise",
    )
    if not len(found):
        raise FishermixError(f"{file} holds none of the words in {vocabulary}")
    found.save(out, dtype="float16" if half else None)
    print(f"{out}: {len(found)} words of {found.dimension} dimensions")


@vectors.command()
def info(
    path: Annotated[Path, typer.Argument(help="An imported folder, or a file of word vectors.")],
    word: Annotated[list[str] | None, typer.Option(help="Show the words most similar to this one.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Read all of an imported folder, compare its hash.")
    ] = False,
) -> None:
    """Show size, first words and neighbours of word vectors.

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
                f"{path} is a file and was just read in full; --check is for imported folders"
            )
        WordVectors.verify(path)
        print("the hash matches")
