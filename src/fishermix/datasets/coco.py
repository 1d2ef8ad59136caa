"""COCO 2014 in its own format: `annotations/captions_{train,val}2014.json`, `train2014/` and `val2014/`."""

from __future__ import annotations

from pathlib import Path

from fishermix.datasets.dataset import Dataset, Protocol
from fishermix.datasets.parsing import Gatherer, count, find, parse_field, parse_json, read_text
from fishermix.errors import FishermixError

SOURCE = (
    "COCO is at cocodataset.org under 'Download': 2014 Train images, 2014 Val images, "
    "2014 Train/Val annotations. Unpack all three into one folder."
)
PROTOCOL = Protocol(dev=5000, test=5000, repeats=5)


def read_coco(folder: Path) -> Dataset:
    """123,287 images; the paper draws 5,000 validation and 5,000 test images at random, five times.

    Parameters
    ----------
    folder : path
        The folder of the data set.
    """
    photos_of: dict[str, Path] = {}
    gatherer = Gatherer("coco", lambda image: [photos_of[image] / image])
    parts = {}
    for half in ("train2014", "val2014"):
        captions = find(
            [folder / "annotations" / f"captions_{half}.json"], f"COCO's captions of {half}", SOURCE
        )
        photos = find([folder / half, folder / "images" / half], f"COCO's folder of {half} photos", SOURCE)
        parts[captions] = photos
    for captions, photos in parts.items():
        for image in _gather(captions, gatherer):
            photos_of[image] = photos
    return gatherer.build_dataset(" and ".join(str(photos) for photos in parts.values()), PROTOCOL)


def _gather(captions: Path, gatherer: Gatherer) -> list[str]:
    """Add the captions of one file; returns the names of its images."""
    content = parse_json(read_text(captions), str(captions))
    name_of: dict[int, str] = {}
    for number, image in enumerate(parse_field(content, "images", list, str(captions))):
        where = f"{captions}, images[{number}]"
        identity, name = parse_field(image, "id", int, where), parse_field(image, "file_name", str, where)
        if identity in name_of or name in gatherer.captions:
            raise FishermixError(f"{where}: the image {name!r} (id {identity}) is listed twice.")
        name_of[identity] = name
        gatherer.add(name, [], where)
    strangers = 0
    for number, annotation in enumerate(parse_field(content, "annotations", list, str(captions))):
        where = f"{captions}, annotations[{number}]"
        caption = parse_field(annotation, "caption", str, where)
        identity = parse_field(annotation, "image_id", int, where)
        if identity in name_of:
            gatherer.add(name_of[identity], [caption], where)
        else:
            strangers += 1
    if strangers:
        gatherer.problems.append(
            f"Skipped {count(strangers, 'caption')} of unknown images in {captions.name}."
        )
    return list(name_of.values())
