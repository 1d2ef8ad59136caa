"""Give a model what captions say where they use a phrase, which completes short queries.

    python tools/make_phrases.py MODEL --data flickr8k:DIR --data folder:COCO_DIR --work WORK

A phrase is one to three words of a training caption without a stop word at its ends, such as "red jacket". It
is kept if enough captions contain it. WORK keeps the sentence transformer's vectors of all captions, so that
a second run takes a minute. See `fishermix_photos.model.phrases` for what is written to MODEL/phrases.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from fishermix_lab.datasets.readers import open_dataset
from fishermix_lab.phrases import average_captions
from fishermix_lab.stages import CachedTransformer
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.saved import PHRASES


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("model")
    parser.add_argument("--data", action="append", required=True, help="KIND:PATH of a captioned data set")
    parser.add_argument("--work", required=True, help="folder that keeps the transformer's vectors")
    parser.add_argument("--fewest", type=int, default=20, help="captions that contain a phrase")
    parser.add_argument("--weight", type=float, default=1.0, help="of the captions against the phrase itself")
    arguments = parser.parse_args()
    model = ImageTextModel.load(arguments.model)
    transformer = model.sentence_encoder.transformer
    if transformer is not None:
        model.sentence_encoder.set_params(transformer=CachedTransformer(transformer, arguments.work))
    sentences = [text for spec in arguments.data for text in open_dataset(spec).part("train").sentences]
    blocks = model.sentence_encoder.blocks(sentences)
    embeddings = np.concatenate([model.joint_space.embed_right(block) for block in blocks])
    phrases = average_captions(sentences, embeddings, arguments.fewest, arguments.weight)
    phrases.save(Path(arguments.model) / PHRASES, model.key)
    print(f"{len(phrases.phrases)} phrases of {len(sentences)} captions")


if __name__ == "__main__":
    main()
