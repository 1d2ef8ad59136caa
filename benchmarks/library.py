"""How many photos are encoded again when a folder is moved, a subfolder is searched, and photos are added:
one between two commands, and two while the folder is served.

    python benchmarks/library.py PHOTO_FOLDER

The photos are hard links or copies in a temporary folder, spread over ten subfolders; the library is in
another temporary folder. Each step is a command in a process of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

from PIL import Image

SUBFOLDERS = 10


def main(source: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        photos = place / "photos"
        for position, path in enumerate(sorted(source.glob("*.jpg"))):
            target = photos / f"{2010 + position % SUBFOLDERS}" / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, target)
            except OSError:  # another file system
                shutil.copyfile(path, target)
        report("added", place, "library", "add", photos)
        report("nothing changed", place, "library", "update", photos)
        moved = photos.rename(place / "moved")
        report("the folder moved", place, "library", "add", moved)
        report("a subfolder", place, "library", "add", moved / "2015")
        shutil.copytree(moved / "2016", place / "copy")
        report("a copy of a subfolder", place, "library", "add", place / "copy")
        Image.effect_noise((320, 240), 60).convert("RGB").save(moved / "2015" / "new.jpg")
        report("one photo added", place, "library", "update", moved)
        add_while_serving(place, moved)
        run(place, "search", "two dogs run on a beach", moved / "2015", "-n", "3", shows=True)
        run(place, "library", "list", shows=True)


def add_while_serving(place: Path, folder: Path) -> None:
    """Serve the folder, add two photos, and say when they are found and how many were to be encoded."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "fishermix_photos", "-q", "serve", folder, "--port", str(port)]
    server = subprocess.Popen(command, env=make_environment(place), stdout=subprocess.DEVNULL)
    try:
        start = time.perf_counter()
        photos = wait_for(port, lambda status: status["state"] == "ready")["photos"]
        started = time.perf_counter() - start
        for name in ("first.jpg", "second.jpg"):
            Image.effect_noise((320, 240), 60).convert("RGB").save(folder / "2015" / name)
        start, totals = time.perf_counter(), {0}

        def are_found(status: dict) -> bool:
            if "ndexing" in status["message"]:
                totals.add(status["total"] or 0)
            return status["photos"] >= photos + 2

        found = wait_for(port, are_found)["photos"]
        seconds = time.perf_counter() - start
        print(
            f"{'two while serving':22} {found:6,} photos, encoded {max(totals):6,}, after {seconds:.1f} s "
            f"(the server was ready after {started:.1f} s)",
            flush=True,
        )
    finally:
        server.terminate()
        server.wait()
    report("nothing is left", place, "library", "update", folder)


def wait_for(port: int, condition: Callable[[dict], bool]) -> dict:
    """The first status of a server that meets a condition."""
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/api/status") as answer:
                status = json.load(answer)
            if condition(status):
                return status
        except OSError:  # not yet started
            pass
        time.sleep(0.02)


def report(step: str, place: Path, *arguments: str | Path) -> None:
    start = time.perf_counter()
    printed = run(place, *arguments)
    seconds = time.perf_counter() - start
    photos, encoded, recognized = re.findall(r"[\d,]+(?= (?:photos|encoded|recognized))", printed)
    print(
        f"{step:22} {photos:>6} photos, encoded {encoded:>6}, recognized {recognized:>6}, {seconds:6.1f} s",
        flush=True,
    )


def run(place: Path, *arguments: str | Path, shows: bool = False) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fishermix_photos", "--quiet", *map(str, arguments)],
        env=make_environment(place),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    if shows:
        print(done.stdout, end="", flush=True)
    return done.stdout


def make_environment(place: Path) -> dict[str, str]:
    return os.environ | {"FISHERMIX_HOME": str(place / "home")}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
