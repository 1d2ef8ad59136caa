"""How many photos are encoded again when a folder is moved, a subfolder is searched, and one photo is added.

    python benchmarks/library.py PHOTO_FOLDER

The photos are hard links or copies in a temporary folder, spread over ten subfolders; the indexes are in
another temporary folder. Each step is a command in a process of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
        report("indexed", place, "index", "add", photos)
        report("nothing changed", place, "index", "update", photos)
        moved = photos.rename(place / "moved")
        report("the folder moved", place, "index", "add", moved)
        report("a subfolder", place, "index", "add", moved / "2015")
        shutil.copytree(moved / "2016", place / "copy")
        report("a copy of a subfolder", place, "index", "add", place / "copy")
        Image.effect_noise((320, 240), 60).convert("RGB").save(moved / "2015" / "new.jpg")
        report("one photo added", place, "index", "update", moved)
        run(place, "search", "two dogs run on a beach", moved / "2015", "-n", "3", shows=True)
        run(place, "index", "list", shows=True)


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
        [sys.executable, "-m", "fishermix", "--quiet", *map(str, arguments)],
        env=os.environ | {"FISHERMIX_HOME": str(place / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    if shows:
        print(done.stdout, end="", flush=True)
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
