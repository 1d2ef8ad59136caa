"""`fishermix doctor`: check the installation, the model and the indexes."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from fishermix import __version__
from fishermix.cli import app
from fishermix.cli.common import ModelOption, open_model, say
from fishermix.errors import FishermixError
from fishermix.extras import EXTRAS
from fishermix.threads import available_threads
from fishermix.vision.formats import FORMATS, explain_missing

CORE = (
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "safetensors",
    "pillow",
    "pillow-heif",
    "onnxruntime",
    "typer",
    "rich",
)
# What works without an extra, although its name suggests otherwise.
PURPOSE = {"caption": "needed only to train a captioner"}


@app.command(epilog="Example: fishermix doctor ~/Pictures")
def doctor(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Check the index of this folder only. Default: all indexes in your data directory."
        ),
    ] = None,
    model: ModelOption = None,
) -> None:
    """Check the installation, the model and the indexes, and show versions and threads.

    The exit code is 1 if there is a problem.
    """
    problems: list[str] = []
    say(f"fishermix   {__version__}")
    say(f"Python      {platform.python_version()} on {platform.system()} {platform.machine()}")
    say(f"packages    {', '.join(f'{name} {_version(name, problems)}' for name in CORE)}")
    say(f"extras      {', '.join(_extras())}")
    say(f"photos      {', '.join(_formats())}")
    say(f"threads     {available_threads()}")
    for line in _linear_algebra():
        say(line)
    say(f"model       {_model(model, problems)}")
    for line in _indexes(folder, problems):
        say(line)
    if problems:
        raise FishermixError(" ".join(problems))
    say("No problems found.")


def _version(name: str, problems: list[str]) -> str:
    from importlib.metadata import PackageNotFoundError, version  # --help does not wait for it

    try:
        return version(name)
    except PackageNotFoundError:
        problems.append(f"The package {name} is missing. Install fishermix again.")
        return "missing"


def _extras() -> Iterator[str]:
    from importlib.metadata import PackageNotFoundError, version

    for extra, names in EXTRAS.items():
        try:
            yield f"{extra} ({', '.join(f'{name} {version(name)}' for name in names)})"
        except PackageNotFoundError:
            purpose = f"; {PURPOSE[extra]}" if extra in PURPOSE else ""
            yield f"{extra} (not installed{purpose})"


def _formats() -> Iterator[str]:
    for one in FORMATS:
        missing = "" if one.is_installed else f" (not installed: {explain_missing(one)})"
        yield f"{one.name}{missing}"


def _linear_algebra() -> Iterator[str]:
    import numpy  # noqa: F401 - loads its BLAS
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    for pool in threadpool_info():
        yield f"threads     {pool['num_threads']} in {pool['internal_api']} {pool['version'] or ''}".rstrip()


def _model(folder: Path | None, problems: list[str]) -> str:
    try:
        model = open_model(folder)
        if not model.encode_text(["a red ball on a beach"]).any():
            problems.append("All words of 'a red ball on a beach' are out of the model's vocabulary.")
        model.image_encoder  # noqa: B018 (opens the network)
        captions = "with" if model.captioner is not None else "without"
    except FishermixError as error:
        problems.append(str(error))
        return "cannot be loaded"
    return f"{model.key}, {model.dimension} dimensions, {captions} captioner"


def _explain_permissions(place: Path) -> list[str]:
    """A sentence if other users can read an index, as some of version 0.1 let them."""
    from fishermix.disk import find_open_paths

    found = find_open_paths(place)
    if not found:
        return []
    return [
        f"Other users of this machine can read it, with the names of your photos ({len(found)} files and "
        f"folders). Run `chmod -R go-rwx {shlex.quote(str(place))}`."
    ]


def _indexes(folder: Path | None, problems: list[str]) -> Iterator[str]:
    from fishermix.retrieval.library import list_library
    from fishermix.retrieval.photo_files import default_index
    from fishermix.retrieval.sqlite_store import LocalStore

    found = list_library()
    if folder is not None:
        found = [one for one in found if one.place == default_index(folder.expanduser().resolve())]
    yield f"indexes     {len(found)}"
    for one in found:
        place = one.place
        try:
            store = LocalStore(place)
            wrong = store.verify()
            healthy = f"{store.summary().photos:,} photos, no problems"
            yield f"  {place}: {' '.join(wrong) or healthy}"
            store.close()
            wrong += _explain_permissions(place)
        except FishermixError as error:
            wrong = [str(error)]
            yield f"  {place}: cannot be used"
        if one.is_orphan:
            yield f"    {explain_orphan(one.folder)}"
        problems += [f"Index {place.name}: {text}" for text in wrong]


def explain_orphan(folder: Path | None) -> str:
    return (
        f"Its folder {folder} is gone. If the disk is not mounted, mount it. If you moved the folder, search "
        "it in its new place: its photos are recognized. "
        f"`fishermix index remove {shlex.quote(str(folder))}` then deletes this index."
    )
