"""How far a reader has to jump to follow one flow: files visited, and returns to a file already left.

    python tools/trace.py [search] [em] [train] [dask] [--files] [--path]

Each flow runs on tiny data in this process, once to warm up and once traced. Every call of a function of
both packages is recorded with its file. Consecutive calls within one file count once; entering a file again
after leaving it is a return. Comprehensions, and calls from threads of other packages, are part of the flow;
code that runs at import is not. Compiled kernels count when they are called as Python functions.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np


def list_sources() -> list[str]:
    """The folders of both packages."""
    import fishermix
    import fishermix_photos

    return [str(Path(package.__file__).parent) for package in (fishermix, fishermix_photos)]


def trace(flow: Callable[[], object]) -> list[str]:
    """The files of both packages that `flow` enters, in order, each run of calls within one file once."""
    sources = tuple(f"{source}/" for source in list_sources())
    visits: list[str] = []

    def record(frame, event, argument) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            name = frame.f_code.co_filename
            if name.startswith(sources):
                name = "/".join(Path(name).parts[Path(name).parts.index("src") + 1 :])
                if not visits or visits[-1] != name:
                    visits.append(name)

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        flow()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return visits


def prepare_search(folder: Path) -> Callable[[], object]:
    """`fishermix search SENTENCE FOLDER` in a folder of the library."""
    import contextlib
    import io

    from fishermix_photos.cli import load_commands
    from PIL import Image

    photos = folder / "photos"
    photos.mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), np.uint8)).save(photos / f"{number}.png")
    app = load_commands()

    def search() -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            app(
                ["search", "a dog on the beach", str(photos), "--library", str(folder / "library")],
                standalone_mode=False,
            )

    return search


def prepare_em(folder: Path) -> Callable[[], object]:
    """`HybridMixture.fit` of an array, two iterations."""
    from fishermix import HybridMixture

    rows = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    return lambda: HybridMixture(3, max_iter=2, tol=0, random_state=0, n_jobs=1).fit(rows)


def prepare_train(folder: Path) -> Callable[[], object]:
    """`train_model` with a new work folder: twelve photos, two sentences each, the hybrid mixture."""
    from itertools import count

    from fishermix import WordVectors
    from fishermix_photos.lab.datasets import Dataset
    from fishermix_photos.lab.recipe import find_recipe
    from fishermix_photos.lab.training import train_model
    from PIL import Image

    rng = np.random.default_rng(0)
    names = [f"{number}.png" for number in range(12)]
    for name in names:
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), np.uint8)).save(folder / name)
    words = [f"word{chr(97 + number)}" for number in range(26)]
    vectors = WordVectors(words, rng.normal(size=(26, 4)).astype(np.float32))
    sentences = [" ".join(rng.choice(words, 5)) for _ in range(24)]
    splits = ["train"] * 10 + ["dev"] * 2
    paths = [folder / name for name in names]
    dataset = Dataset("tiny", names, paths, sentences, np.repeat(np.arange(12), 2), np.array(splits))
    recipe = find_recipe("shipped").with_(mixture_components=2, reg_x=(0.01,), reg_y=(0.01,))
    works = count()
    return lambda: train_model(dataset, vectors, recipe, folder / f"work{next(works)}")


def prepare_dask(folder: Path) -> Callable[[], object]:
    """`HybridMixture.fit` of a dask.array on a cluster within this process, two iterations."""
    import dask.array
    from distributed import Client, LocalCluster
    from fishermix import HybridMixture

    cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
    client = Client(cluster)
    rows = dask.array.from_array(np.random.default_rng(0).normal(size=(500, 4)), chunks=(250, 4))

    def fit() -> None:
        HybridMixture(3, max_iter=2, tol=0, random_state=0, n_jobs=1).fit(rows)

    fit.close = lambda: (client.close(), cluster.close())  # type: ignore[attr-defined]
    return fit


FLOWS = {"search": prepare_search, "em": prepare_em, "train": prepare_train, "dask": prepare_dask}


@dataclass(frozen=True)
class Trace:
    """The files that a flow enters, in order."""

    visits: list[str]

    @property
    def files(self) -> int:
        return len(set(self.visits))

    @property
    def returns(self) -> int:
        """How often the flow enters a file that it has already left."""
        return len(self.visits) - self.files


def trace_flow(name: str) -> Trace:
    """Run a flow on tiny data, once to warm up and once traced."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flow = FLOWS[name](Path(folder))
        flow()
        visits = trace(flow)
        getattr(flow, "close", lambda: None)()
    return Trace(visits)


def main() -> None:
    names = [name for name in sys.argv[1:] if not name.startswith("-")] or list(FLOWS)
    for name in names:
        traced = trace_flow(name)
        print(f"{name}: {traced.files} files, {traced.returns} returns", flush=True)
        if "--files" in sys.argv:
            print("  " + " ".join(dict.fromkeys(traced.visits)))
        if "--path" in sys.argv:
            print("  " + " > ".join(traced.visits))


if __name__ == "__main__":
    main()
