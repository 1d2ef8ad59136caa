"""Index Flickr8K as `fishermix search` does, ask for its test captions, and compare with the evaluation.

    python examples/search_flickr8k.py --flickr8k DIR --index INDEX

Each of the 5,000 test captions goes through the code of the command: the index of all 8,091 photos answers,
and the rank of the right photo is counted among the 1,000 test photos, as `fishermix evaluate` counts it. A
second run finds the index up to date.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np

from fishermix.cli.common import open_index, open_model
from fishermix.datasets import open_dataset
from fishermix.errors import FishermixError
from fishermix.evaluation.ranks import TIE, summary
from fishermix.progress import show_progress, track
from fishermix.retrieval.query import encode_terms, parse_arguments

SHOWN = 10  # photos that the command lists
FIRST_LOOK = 256  # photos of the whole folder, among which most right ones are


def answer(photos, caption: str, n: int) -> list:
    """The n best photos for a caption, by the steps of `fishermix search`."""
    return photos.search(encode_terms(parse_arguments([caption]), photos.model), n)


def rank_among(photos, total: int, caption: str, right: str, wanted: set[str]) -> int:
    """The place of a photo among the `wanted` ones of all, counted from 1; ties count against it."""
    n = FIRST_LOOK
    while True:
        hits = [hit for hit in answer(photos, caption, n) if hit.path in wanted]
        score = next((hit.score for hit in hits if hit.path == right), None)
        if score is not None and (n >= total or hits[-1].score < score - TIE):
            return sum(hit.score >= score - TIE for hit in hits)
        n *= 8


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--flickr8k", type=Path, default=Path(os.environ.get("FISHERMIX_DATA", ".")) / "flickr8k"
    )
    parser.add_argument("--index", help="where the index is kept, if not in its usual place")
    parser.add_argument("--model", type=Path, help="folder of a model; the shipped one if left out")
    options = parser.parse_args()
    show_progress()
    test = open_dataset(f"flickr8k:{options.flickr8k}").part("test")
    names = [path.relative_to(options.flickr8k).as_posix() for path in test.image_paths]
    model = open_model(options.model)

    start = time.perf_counter()
    with open_index(options.flickr8k, options.index, model) as photos:
        total = photos.store.summary().photos
        print(f"{total:,} photos indexed in {time.perf_counter() - start:.1f} s")
        seconds, ranks, wanted = [], [], set(names)
        for caption, image in zip(track(test.sentences, "searching"), test.image_of):
            start = time.perf_counter()
            try:
                answer(photos, caption, SHOWN)
                seconds.append(time.perf_counter() - start)
                ranks.append(rank_among(photos, total, caption, names[image], wanted))
            except FishermixError:
                ranks.append(len(names))  # no word is known
    p50, p95 = np.percentile(seconds, [50, 95]) * 1e3
    print(f"a query of {total:,} photos, model loaded: p50 {p50:.1f} ms, p95 {p95:.1f} ms")
    evaluated = model.evaluate(test)["search"]
    for name, found in (("fishermix search", summary(np.array(ranks))), ("fishermix evaluate", evaluated)):
        print(f"{name:18}", *(f"{measure} {found[measure]:.2f}" for measure in ("r@1", "r@5", "r@10")))


if __name__ == "__main__":
    main()
