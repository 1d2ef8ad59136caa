"""Karpathy's JSON files of Flickr8K, Flickr30K and COCO, the most common form of these sets today."""

from __future__ import annotations

from pathlib import Path

from fishermix.datasets.dataset import Dataset
from fishermix.datasets.parsing import Gatherer, find, parse_field, parse_image_name, parse_json, read_text

SOURCE = (
    "Karpathy's dataset_flickr8k.json, dataset_flickr30k.json and dataset_coco.json are in the file "
    "caption_datasets.zip on his page 'Deep Visual-Semantic Alignments'. The photos come with the data sets."
)
NAMES = ("flickr8k", "flickr30k", "coco")


def read_karpathy(captions: Path, photos: Path) -> Dataset:
    """Read the keys `images[].filename|filepath|split|sentences[].raw|tokens`; `restval` is training data.

    A photo is searched in `photos/filepath/filename` and in `photos/filename`.

    Parameters
    ----------
    captions : path
        The JSON file.
    photos : path
        The folder of the photos.
    """
    find([captions], "Karpathy's JSON", SOURCE)
    find([photos], "the folder of photos", SOURCE)
    content = parse_json(read_text(captions), str(captions))
    folder_of: dict[str, str] = {}

    def locate(image: str) -> list[Path]:
        return [photos / folder_of[image] / image, photos / image]

    stated = content.get("dataset") if isinstance(content, dict) else None
    gatherer = Gatherer(stated if stated in NAMES else "karpathy", locate)
    for number, image in enumerate(parse_field(content, "images", list, str(captions))):
        where = f"{captions}, images[{number}]"
        name = parse_field(image, "filename", str, where)
        folder = parse_field(image, "filepath", str, where) if "filepath" in image else ""
        folder_of[name] = parse_image_name(folder, where) if folder else ""
        sentences = parse_field(image, "sentences", list, where)
        gatherer.add(
            name,
            [_parse_sentence(sentence, where) for sentence in sentences],
            where,
            parse_field(image, "split", str, where),
        )
    return gatherer.build_dataset(str(photos))


def _parse_sentence(sentence: dict, where: str) -> str:
    if isinstance(sentence, dict) and "raw" not in sentence and "tokens" in sentence:
        return " ".join(str(token) for token in parse_field(sentence, "tokens", list, where))
    return parse_field(sentence, "raw", str, where)
