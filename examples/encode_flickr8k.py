"""Encode all captions of Flickr8K as Fisher vectors: time, memory, and words out of vocabulary.

    make word2vec
    FISHERMIX_DATA=/path/to/data python examples/encode_flickr8k.py

`--components 30 --kind ica` are the paper's. The captions are encoded in blocks, one in memory at a time.
"""

import argparse
import os
import resource
import time
import warnings
from collections import Counter
from pathlib import Path

from fishermix import HybridMixture, SentenceEncoder, WordVectors
from fishermix.progress import progress, show_progress
from fishermix.text.whitening import Whitening

FUNCTION_WORDS = ("a", "and", "of", "to")  # not in the GoogleNews vectors


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--flickr8k", type=Path, default=Path(os.environ.get("FISHERMIX_DATA", ".")) / "flickr8k"
    )
    parser.add_argument("--vectors", type=Path, default=Path(".cache/word2vec"))
    parser.add_argument("--kind", choices=["ica", "pca", "none"], default="ica")
    parser.add_argument("--components", type=int, default=30)
    options = parser.parse_args()
    show_progress()

    lines = (options.flickr8k / "Flickr8k.token.txt").read_text("utf8").splitlines()
    captions = [line.split("\t", 1)[1] for line in lines if ".jpg.1#" not in line]  # these have no picture
    vectors = WordVectors.load(options.vectors)

    start = time.perf_counter()
    whitening = Whitening(options.kind).fit(vectors.vectors)
    mixture = HybridMixture(options.components, random_state=0, n_jobs=-1).fit(
        whitening.transform(vectors.vectors)
    )
    print(f"whitening and mixture of {len(vectors):,} words: {time.perf_counter() - start:.1f} s")

    encoder = SentenceEncoder.from_fitted(vectors, whitening, [mixture])
    warnings.simplefilter("ignore")  # captions without a known word are listed below
    start = time.perf_counter()
    with progress("encoding captions", total=len(captions)) as bar:
        for block in encoder.blocks(captions):
            bar.advance(len(block))
    print(f"{len(captions):,} captions x {encoder.n_features:,} numbers: {time.perf_counter() - start:.2f} s")
    print(f"peak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")

    bags = SentenceEncoder(vectors, stop_words=FUNCTION_WORDS).lookup.find(captions)
    n_tokens = sum(map(len, bags.tokens))
    unknown = Counter(word for words in bags.out_of_vocabulary for word in words)
    print(f"tokens in the vocabulary: {1 - unknown.total() / n_tokens:.1%} of {n_tokens:,}")
    print(
        "most frequent words out of vocabulary:",
        ", ".join(f"{word} {n}" for word, n in unknown.most_common(20)),
    )
    print(f"captions without a word in the vocabulary: {len(bags.empty)}")
    for position in bags.empty:
        print(f"  {position}: {captions[position]}")


if __name__ == "__main__":
    main()
