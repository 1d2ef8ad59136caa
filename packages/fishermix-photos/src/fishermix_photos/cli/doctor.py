"""`fishermix doctor`: check the installation, the model and the library."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterator
from pathlib import Path

from fishermix import __version__
from fishermix.errors import FishermixError

from fishermix_photos.cli import ADVICE, app, options
from fishermix_photos.cli.common import open_library, open_model, say
from fishermix_photos.disk import explain_os_error
from fishermix_photos.photos.formats import FORMATS, count_photos, explain_missing

AWAY = "away: mount its disk, or remove it with `fishermix library remove`"


@app.command(examples=["fishermix doctor"])
def doctor(library: options.Library = None, model: options.Model = None) -> None:
    """Check the installation, the model and your library.

    The exit code is 1 if there is a problem.
    """
    from fishermix_photos.photos.text import explain_missing_reader, find_reader

    problems: list[str] = []
    say(
        f"fishermix   {__version__}",
        f"Python      {platform.python_version()} on {platform.system()} {platform.machine()}",
        f"formats     {', '.join(_formats())}",
        f"text        {find_reader() or f'is not read (not installed: {explain_missing_reader()})'}",
    )
    say(f"model       {_model(model, problems)}", *_library(library, problems))
    if problems:
        raise FishermixError(" ".join(problems), code="problems")
    say("No problems found.")


def _formats() -> Iterator[str]:
    for format in FORMATS:
        missing = "" if format.is_installed else f" (not installed: {explain_missing(format)})"
        yield f"{format.name}{missing}"


def _model(folder: Path | None, problems: list[str]) -> str:
    try:
        model = open_model(folder)
        model.encode_text(["a red ball on a beach"])  # reads the words and the transformer
        model.image_encoder  # noqa: B018 (opens the network)
        captions = "with" if model.captioner is not None else "without"
    except FishermixError as error:
        problems.append(str(error))
        return "cannot be loaded"
    except OSError as error:
        problems.append(f"The model cannot be read. {explain_os_error(error)}")
        return "cannot be read"
    return f"{model.key}, {model.dimension} dimensions, {captions} captioner"


def _library(place: str | None, problems: list[str]) -> Iterator[str]:
    """What the library holds, and whether it is sound and private."""
    from fishermix_photos.disk import find_open_paths
    from fishermix_photos.index.connection import REBUILD
    from fishermix_photos.index.reader import WRONG_CODES

    try:
        with open_library(place, None) as library:
            library.expect_there()
            wrong = library.verify()
            problems += wrong
            if wrong and wrong != [WRONG_CODES]:
                problems += [REBUILD, ADVICE["library_damaged"]]
            if exposed := find_open_paths(Path(library.place)) if Path(library.place).is_dir() else []:
                problems.append(
                    f"Other users of this machine can read your library, with the names of your photos "
                    f"({len(exposed)} files and folders). Run `chmod -R go-rwx {shlex.quote(library.place)}`."
                )
            yield f"library     {library.place}: {count_photos(library.count())}, {len(wrong)} problems"
            for status in library.folders():
                yield f"  {status.photos:,}  {status.folder}{'' if status.exists else f'  ({AWAY})'}"
    except FishermixError as error:
        problems.append(str(error))
        yield "library     cannot be used"
    except OSError as error:
        problems.append(f"The library cannot be read. {explain_os_error(error)}")
        yield "library     cannot be read"
