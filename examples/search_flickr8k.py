"""Add Flickr8K to a photo library, search for its test captions, and compare with the evaluation.

    python examples/search_flickr8k.py --flickr8k DIR --library PLACE

Each of the 5,000 test captions is a query for the library of all 8,091 photos. The rank of the right photo is
counted among the 1,000 test photos, as `fishermix evaluate` counts it. A second run analyzes none.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
from fishermix.joint.ranks import TIE, summary
from fishermix.progress import show_progress, track
from fishermix_lab.datasets.readers import open_dataset
from fishermix_lab.training import evaluate_model
from fishermix_photos import PhotoLibrary, Query
from fishermix_photos.search.results import Photo
from fishermix_photos.search.terms import Term
from fishermix_photos.search.vectors import UnknownTerm

SHOWN = 10  # photos that the command lists
FIRST = 256  # photos of the whole library, among which most right ones are


def find(library: PhotoLibrary, caption: str, n: int) -> tuple[Photo, ...]:
    """The n best photos for a caption."""
    return library.search(Query(terms=(Term("+", "text", caption, is_quoted=True),), n=n)).photos


def rank_among(library: PhotoLibrary, total: int, caption: str, right: str, wanted: set[str]) -> int:
    """The rank of a photo among the `wanted` ones of all, counted from 1; ties count against it."""
    n = FIRST
    while True:
        photos = [photo for photo in find(library, caption, n) if photo.path in wanted]
        score = next((photo.score for photo in photos if photo.path == right), None)
        if score is not None and (n >= total or photos[-1].score < score - TIE):
            return sum(photo.score >= score - TIE for photo in photos)
        n *= 8


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--flickr8k", type=Path, default=Path(os.environ.get("FISHERMIX_DATA", ".")) / "flickr8k"
    )
    parser.add_argument("--library", help="folder of the photo library; default: your own library")
    parser.add_argument("--model", type=Path, help="folder of a model; default: the model in the package")
    options = parser.parse_args()
    show_progress()
    test = open_dataset(f"flickr8k:{options.flickr8k}").part("test")
    paths = [str(path.resolve()) for path in test.image_paths]

    start = time.perf_counter()
    with PhotoLibrary(options.library, options.model) as library:
        library.update([options.flickr8k.resolve()])
        total = library.count()
        print(f"{total:,} photos analyzed in {time.perf_counter() - start:.1f} s")
        seconds, ranks, wanted = [], [], set(paths)
        for caption, image in zip(track(test.sentences, "searching"), test.image_of):
            start = time.perf_counter()
            try:
                find(library, caption, SHOWN)
                seconds.append(time.perf_counter() - start)
                ranks.append(rank_among(library, total, caption, paths[image], wanted))
            except UnknownTerm:
                ranks.append(len(paths))  # no word is known
        p50, p95 = np.percentile(seconds, [50, 95]) * 1e3
        print(f"a query of {total:,} photos, model loaded: p50 {p50:.1f} ms, p95 {p95:.1f} ms")
        evaluated = evaluate_model(library.model, test)["search"]
    for name, found in (("PhotoLibrary", summary(np.array(ranks))), ("fishermix evaluate", evaluated)):
        print(f"{name:18}", *(f"{measure} {found[measure]:.2f}" for measure in ("r@1", "r@5", "r@10")))


if __name__ == "__main__":
    main()
