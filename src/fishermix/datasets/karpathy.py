"""Karpathy's JSON of Flickr8K, Flickr30K and COCO, the form in which most people hold these sets today."""

from __future__ import annotations

from pathlib import Path

from fishermix.datasets.dataset import Dataset
from fishermix.datasets.parsing import Gatherer, find, member, parse_json, read_text, safe_name

SOURCE = (
    "Karpathy's dataset_flickr8k.json, dataset_flickr30k.json and dataset_coco.json are in the file "
    "caption_datasets.zip of his page 'Deep Visual-Semantic Alignments'; the photos come with the data sets."
)
NAMES = ("flickr8k", "flickr30k", "coco")


def read_karpathy(captions: Path, photos: Path) -> Dataset:
    """Keys `images[].filename|filepath|split|sentences[].raw|tokens`; `restval` counts as training.

    A photo is looked for in `photos/filepath/filename` and in `photos/filename`.
    """
    find([captions], "Karpathy's JSON", SOURCE)
    find([photos], "the folder of photos", SOURCE)
    content = parse_json(read_text(captions), str(captions))
    folder_of: dict[str, str] = {}

    def locate(image: str) -> list[Path]:
        return [photos / folder_of[image] / image, photos / image]

    told = content.get("dataset") if isinstance(content, dict) else None
    gatherer = Gatherer(told if told in NAMES else "karpathy", locate)
    for number, image in enumerate(member(content, "images", list, str(captions))):
        where = f"{captions}, images[{number}]"
        name = member(image, "filename", str, where)
        folder = member(image, "filepath", str, where) if "filepath" in image else ""
        folder_of[name] = safe_name(folder, where) if folder else ""
        sentences = member(image, "sentences", list, where)
        gatherer.add(
            name,
            [_text(sentence, where) for sentence in sentences],
            where,
            member(image, "split", str, where),
        )
    return gatherer.dataset(str(photos))


def _text(sentence: dict, where: str) -> str:
    if isinstance(sentence, dict) and "raw" not in sentence and "tokens" in sentence:
        return " ".join(str(token) for token in member(sentence, "tokens", list, where))
    return member(sentence, "raw", str, where)
