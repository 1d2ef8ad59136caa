"""How far a reader has to jump to follow one flow: files visited, and returns to a file already left.

    python tools/trace.py [search] [em] [train] [dask]

Each flow runs on tiny data in this process, once to warm up and once traced. Every call of a function of
fishermix is recorded with its file. Consecutive calls within one file count once; entering a file again after
leaving it is a return. Code that runs at import, comprehensions and calls made by other packages' threads are
part of the flow like all other code; compiled kernels count when they are called as Python functions.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np


def package_folder() -> str:
    import fishermix

    return str(Path(fishermix.__file__).parent) + "/"


def trace(flow: Callable[[], object]) -> list[str]:
    """The files of fishermix that `flow` enters, in order, each run of calls within one file once."""
    package = package_folder()
    visits: list[str] = []

    def record(frame, event, argument) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            name = frame.f_code.co_filename
            if name.startswith(package):
                name = name.removeprefix(package)
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
    """`fishermix search SENTENCE FOLDER` in a folder that is indexed already."""
    import contextlib
    import io

    from PIL import Image

    from fishermix.cli import load_commands

    photos = folder / "photos"
    photos.mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), np.uint8)).save(photos / f"{number}.png")
    app = load_commands()

    def search() -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            app(
                ["search", "a dog on the beach", str(photos), "--index", str(folder / "index")],
                standalone_mode=False,
            )

    return search


def prepare_em(folder: Path) -> Callable[[], object]:
    """`HybridMixture.fit` of an array, two iterations."""
    from fishermix import HybridMixture

    rows = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    return lambda: HybridMixture(3, max_iter=2, tol=0, random_state=0, n_jobs=1).fit(rows)


def prepare_train(folder: Path) -> Callable[[], object]:
    """`ImageTextModel.fit` with a new work folder: twelve photos, two sentences each, the hybrid mixture."""
    from itertools import count

    from PIL import Image

    from fishermix import ImageTextModel, WordVectors
    from fishermix.datasets.dataset import Dataset

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
    recipe = small_recipe()
    works = count()
    return lambda: ImageTextModel(vectors, recipe).fit(dataset, folder / f"work{next(works)}")


def small_recipe():
    try:
        from fishermix.model.recipe import find_recipe
    except ImportError:  # 0.1
        from fishermix.recipes import recipe_named as find_recipe
    recipe = find_recipe("shipped")
    return recipe.with_(components=2, reg_x=(0.01,), reg_y=(0.01,))


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


def main() -> None:
    names = [name for name in sys.argv[1:] if not name.startswith("-")] or list(FLOWS)
    for name in names:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flow = FLOWS[name](Path(folder))
            flow()
            visits = trace(flow)
            getattr(flow, "close", lambda: None)()
        files = sorted(set(visits))
        print(f"{name}: {len(files)} files, {len(visits) - len(files)} returns")
        if "--files" in sys.argv:
            print("  " + " ".join(dict.fromkeys(visits)))
        if "--path" in sys.argv:
            print("  " + " > ".join(visits))


if __name__ == "__main__":
    main()
