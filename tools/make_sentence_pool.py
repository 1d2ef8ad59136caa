"""Give a model the sentences that `fishermix annotate` ranks if it is given none.

    python tools/make_sentence_pool.py MODEL --data folder:COCO_DIR --source "where they come from, license"

The sentences are the plain ones in the package and training captions of the data sets. A caption is kept if
it is short, has only words of the vocabulary and is not about the picture ("a picture of"). Of captions
that mean the same, the one that is most like the others stays, because it fits more photos. The points of the
sentences are stored in MODEL/sentences, so that no command has to encode them.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import numpy as np
from fishermix.text.tokens import tokenize
from fishermix_lab.datasets.readers import open_dataset
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.saved import SENTENCES
from fishermix_photos.model.sentences import PooledSentences, read_sentences

ABOUT_THE_PICTURE = re.compile(r"\b(picture|photo|photograph|image|view|shot|close ?up|there (is|are))\b")
NEIGHBORS = 10  # the mean cosine with this many says how general a caption is
BLOCK = 2000


def is_plain(sentence: str, model: ImageTextModel) -> bool:
    return (
        len(tokenize(sentence)) in range(4, 12)
        and sentence.isascii()
        and not ABOUT_THE_PICTURE.search(sentence)
        and not re.search(r"[^a-z ,'-]", sentence)
        and not model.encode_query(sentence)[1]
    )


def rank_by_generality(points: np.ndarray) -> np.ndarray:
    """Rows, most general first."""
    general = np.empty(len(points), np.float32)
    for start in range(0, len(points), BLOCK):
        cosines = points[start : start + BLOCK] @ points.T
        general[start : start + BLOCK] = np.partition(cosines, -NEIGHBORS, axis=1)[:, -NEIGHBORS:].mean(
            axis=1
        )
    return np.argsort(-general, kind="stable")


def choose(points: np.ndarray, n_first: int, number: int) -> list[int]:
    """The first rows, then the most general others, without those that mean the same as one before."""
    order = [*range(n_first), *(n_first + rank_by_generality(points[n_first:]))]
    kept = np.zeros((number, points.shape[1]), np.float32)
    rows: list[int] = []
    same = 0.85  # the cosine from which on two sentences mean the same
    for row in order:
        if row < n_first or not len(rows) or (kept[: len(rows)] @ points[row]).max() < same:
            kept[len(rows)] = points[row]
            rows.append(int(row))
        if len(rows) == number:
            break
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("model")
    parser.add_argument("--data", action="append", required=True, help="KIND:PATH of a captioned data set")
    parser.add_argument("--source", required=True, help="where the captions come from, and their license")
    parser.add_argument("--number", type=int, default=8_000)
    arguments = parser.parse_args()
    model = ImageTextModel.load(arguments.model)
    captions: dict[str, None] = {}
    for spec in arguments.data:
        for caption in open_dataset(spec).part("train").sentences:
            captions[caption.strip().rstrip(".! ").lower()] = None
    plain = [caption for caption in captions if is_plain(caption, model)]
    drawn = np.random.default_rng(0).permutation(len(plain))[:20_000]
    everyday = read_sentences()
    sentences = list(dict.fromkeys([*everyday, *(plain[row] for row in sorted(drawn))]))
    points = model.encode_text(sentences)
    known = np.flatnonzero(points.any(axis=1))
    sentences, points = [sentences[row] for row in known], points[known]
    n_first = sum(sentence in set(everyday) for sentence in sentences)
    rows = choose(points, n_first, arguments.number)
    pool = PooledSentences([sentences[row] for row in rows], points[rows], arguments.source)
    folder = Path(arguments.model) / SENTENCES
    pool.save(folder, model.key)
    (folder / "NOTICE").write_text(f"The sentences in config.json: {arguments.source}.\n")
    print(json.dumps({"captions": len(captions), "plain": len(plain), "kept": len(rows)}))


if __name__ == "__main__":
    main()
