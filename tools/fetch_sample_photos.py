"""Fetch the photos that `make demo` shows: python tools/fetch_sample_photos.py FOLDER

They are in the wheel of scikit-image, which is downloaded and unpacked but not installed: that takes 70 MB.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from fishermix_photos.cli.demo import PACKAGED_PHOTOS

PACKAGE = "scikit-image>=0.22"


def main(folder: Path) -> None:
    wanted = PACKAGED_PHOTOS["skimage.data"]
    folder.mkdir(parents=True, exist_ok=True)
    if all((folder / name).exists() for name in wanted):
        return
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        options = ["--no-deps", "--only-binary", ":all:", "--dest", scratch, PACKAGE]
        if subprocess.run(pip + options).returncode:
            print("Without the photos of scikit-image, the demo has two.", file=sys.stderr)
            return
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in wanted:
                (folder / name).write_bytes(archive.read(f"skimage/data/{name}"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
