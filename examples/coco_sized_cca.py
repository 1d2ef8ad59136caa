"""CCA of COCO's size by streaming: 566,000 sentences of 18,000 features, 113,200 images of 1,280.

    python examples/coco_sized_cca.py                  20,480 sentences; the rest is extrapolated
    python examples/coco_sized_cca.py --rows 566000    all of them

Sentences are generated one block at a time; only the sums stay in memory. Summing is linear in the number of
sentences and the time of the solution does not depend on it, so a part predicts the time of the whole.
"""

import argparse
import resource
import time

import numpy as np
from fishermix import RegularizedCCA
from fishermix.cca.covariances import CovarianceSums, choose_block_rows

SENTENCES = 566_000
SENTENCES_PER_IMAGE = 5
LATENT = 200


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_480, help="number of sentences to process")
    parser.add_argument("--sentence-features", type=int, default=18_000)
    parser.add_argument("--image-features", type=int, default=1_280)
    parser.add_argument("--components", type=int, default=256)
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    n_images = -(-options.rows // SENTENCES_PER_IMAGE)
    pairs = np.repeat(np.arange(n_images), SENTENCES_PER_IMAGE)[: options.rows]
    meaning = rng.standard_normal((n_images, LATENT), dtype=np.float32)
    images = meaning @ rng.standard_normal((LATENT, options.image_features), dtype=np.float32)
    images += 5 * rng.standard_normal(images.shape, dtype=np.float32)
    mixing = rng.standard_normal((LATENT, options.sentence_features), dtype=np.float32)
    making = np.zeros(2)

    def blocks():
        nonlocal making
        step = choose_block_rows(options.sentence_features)
        for start in range(0, options.rows, step):
            begin = clocks()
            block = meaning[pairs[start : start + step]] @ mixing
            block += 20 * rng.standard_normal(block.shape, dtype=np.float32)
            making += clocks() - begin
            yield block

    begin = clocks()
    sums = CovarianceSums.from_blocks(images, blocks(), pairs)
    summing = clocks() - begin - making
    begin = clocks()
    cca = next(RegularizedCCA(options.components).path(sums, reg_x=[0.01], reg_y=[0.01]))
    solving = clocks() - begin

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    whole = summing * SENTENCES / options.rows + solving
    print(
        f"sums of {options.rows:,} sentences: {format_time(summing)}, "
        f"{options.rows / summing[0]:,.0f} sentences/s"
    )
    print(f"solution: {format_time(solving)}, largest correlation {cca.correlations_[0]:.3f}")
    print(f"peak memory: {peak / 1e9:.1f} GB")
    how = "measured" if options.rows >= SENTENCES else f"extrapolated from {options.rows:,}"
    print(f"all {SENTENCES:,} sentences: {format_time(whole)}, {how}")


def clocks() -> np.ndarray:
    """Wall time and processor time; they differ on a busy machine."""
    return np.array([time.perf_counter(), time.process_time()])


def format_time(seconds: np.ndarray) -> str:
    return f"{seconds[0]:.1f} s ({seconds[1]:.1f} s of processor time)"


if __name__ == "__main__":
    main()
