"""Readers of the data sets, each with the place to get it from; `open_dataset` opens one by `KIND:PATH`."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fishermix.errors import FishermixError
from msgspec import Struct

from fishermix_photos.lab.datasets.dataset import Dataset, Protocol
from fishermix_photos.lab.datasets.parsing import (
    Gatherer,
    find,
    parse_image_name,
    parse_json,
    read_lines,
    read_text,
)

FORMS = "flickr8k:DIR, flickr30k:DIR, pascal1k:DIR, coco:DIR, karpathy:FILE.json:IMAGES_DIR or folder:DIR"


def open_dataset(spec: str) -> Dataset:
    """Read the data set `KIND:PATH`.

    Parameters
    ----------
    spec : str
        `flickr8k:DIR`, `flickr8k-official:DIR`, `flickr30k:DIR`, `pascal1k:DIR`, `coco:DIR`,
        `karpathy:FILE.json:IMAGES_DIR` or `folder:DIR`. With `flickr8k-official`, the training images are the
        official 6,000 instead of the paper's 6,091.

    Returns
    -------
    dataset : Dataset

    Examples
    --------
    >>> open_dataset("flickr8k:no/such/folder")
    Traceback (most recent call last):
    fishermix.errors.FishermixError: There is no folder no/such/folder (data set flickr8k:no/such/folder).
    """
    kind, _, path = spec.partition(":")
    if kind not in KINDS or not path:
        raise FishermixError(f"{spec!r} is not a data set. Write {FORMS}.")
    if kind == "karpathy":
        stem, json_colon, photos = path.rpartition(".json:")
        if not (stem and json_colon and photos):
            raise FishermixError(
                f"{spec!r} does not name a folder of photos. Write karpathy:FILE.json:IMAGES_DIR."
            )
        return read_karpathy(Path(f"{stem}.json").expanduser(), Path(photos).expanduser())
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise FishermixError(f"There is no folder {folder} (data set {spec}).")
    return READERS[kind](folder)


# Flickr8K and Flickr30K: one caption per line, `NAME.jpg#NUMBER<TAB>caption`

FLICKR_SOURCE = (
    "The University of Illinois provides it: search for 'Flickr8k' or 'Flickr30k dataset request form'."
)
NO_SUCH_PHOTO = "2258277193_586949ec62.jpg.1"  # has captions, but was never published


def read_flickr8k(folder: Path, official: bool = False) -> Dataset:
    """8,091 images, 40,455 sentences, and official dev and test splits of 1,000 images each.

    The other 6,091 are training images, as in the paper; or only the 6,000 of the official list.
    """

    def find_text(name: str) -> Path:
        return find(folder, [name, f"Flickr8k_text/{name}"], f"Flickr8K's {name}", FLICKR_SOURCE)

    captions = find_text("Flickr8k.token.txt")
    splits = ("train", "dev", "test") if official else ("dev", "test")
    lists = {split: find_text(f"Flickr_8k.{split}Images.txt") for split in splits}
    folders = ("Images", "Flicker8k_Dataset", "Flickr8k_Dataset")
    photos = find(folder, folders, "Flickr8K's folder of photos", FLICKR_SOURCE)
    gatherer = _gather_flickr("flickr8k-official" if official else "flickr8k", captions, photos)
    gatherer.captions.pop(NO_SUCH_PHOTO, None)
    for split, path in lists.items():
        for where, line in read_lines(path):
            if line.strip() not in gatherer.captions:
                raise FishermixError(f"{where}: {line.strip()!r} has no captions in {captions}.")
            gatherer.add(line.strip(), [], where, split)
    for name in gatherer.captions:
        gatherer.split.setdefault(name, "" if official else "train")
    return gatherer.build_dataset(str(photos))


def read_flickr30k(folder: Path) -> Dataset:
    """31,783 images without official splits; 1,000 validation and 1,000 test images are drawn five times."""
    captions = find(folder, ["results_20130124.token"], "Flickr30K's caption file", FLICKR_SOURCE)
    folders = ("flickr30k-images", "flickr30k_images", "images")
    photos = find(folder, folders, "Flickr30K's folder of photos", FLICKR_SOURCE)
    gatherer = _gather_flickr("flickr30k", captions, photos)
    return gatherer.build_dataset(str(photos), Protocol(dev=1000, test=1000, repeats=5))


def _gather_flickr(name: str, captions: Path, photos: Path) -> Gatherer:
    gatherer = Gatherer(name, lambda image: [photos / image])
    for where, line in read_lines(captions):
        key, tab, caption = line.partition("\t")
        image, number_sign, number = key.rpartition("#")
        if not (tab and number_sign and number.strip().isdigit()):
            raise FishermixError(f"{where}: expected NAME.jpg#NUMBER<TAB>caption, found {line[:60]!r}.")
        gatherer.add(image, [caption], where)
    return gatherer


# Karpathy's JSON files of Flickr8K, Flickr30K and COCO, the most common form of these sets today

KARPATHY_SOURCE = (
    "Karpathy's JSON files are in caption_datasets.zip on his page 'Deep Visual-Semantic Alignments'. The "
    "photos come with the data sets."
)


class KarpathySentence(Struct):
    raw: str = ""
    tokens: list[str] = []


class KarpathyImage(Struct):
    filename: str
    split: str
    sentences: list[KarpathySentence]
    filepath: str = ""


class KarpathyFile(Struct):
    images: list[KarpathyImage]
    dataset: str = ""


def read_karpathy(captions: Path, photos: Path) -> Dataset:
    """Photos are in `photos/filepath/filename` or `photos/filename`; `restval` is training data."""
    find(captions, [""], "Karpathy's JSON", KARPATHY_SOURCE)
    find(photos, [""], "the folder of photos", KARPATHY_SOURCE)
    content = parse_json(read_text(captions), KarpathyFile, captions)
    folder_of: dict[str, str] = {}
    gatherer = Gatherer(
        content.dataset if content.dataset in ("flickr8k", "flickr30k", "coco") else "karpathy",
        lambda image: [photos / folder_of[image] / image, photos / image],
    )
    for number, image in enumerate(content.images):
        where = f"{captions}, images[{number}]"
        folder_of[image.filename] = parse_image_name(image.filepath, where) if image.filepath else ""
        sentences = [sentence.raw or " ".join(sentence.tokens) for sentence in image.sentences]
        gatherer.add(image.filename, sentences, where, image.split)
    return gatherer.build_dataset(str(photos))


# COCO 2014: `annotations/captions_{train,val}2014.json`, `train2014/` and `val2014/`

COCO_SOURCE = (
    "COCO is at cocodataset.org under 'Download': 2014 Train images, 2014 Val images, "
    "2014 Train/Val annotations. Unpack all three into one folder."
)
COCO_PROTOCOL = Protocol(dev=5000, test=5000, repeats=5)


class CocoImage(Struct):
    id: int
    file_name: str


class CocoCaption(Struct):
    image_id: int
    caption: str


class CocoFile(Struct):
    images: list[CocoImage]
    annotations: list[CocoCaption]


def read_coco(folder: Path) -> Dataset:
    """123,287 images; the paper draws 5,000 validation and 5,000 test images at random, five times."""
    halves = {}
    for half in ("train2014", "val2014"):
        file = f"annotations/captions_{half}.json"
        captions = find(folder, [file], f"COCO's captions of {half}", COCO_SOURCE)
        folders = (half, f"images/{half}")
        halves[captions] = find(folder, folders, f"COCO's folder of {half} photos", COCO_SOURCE)
    photos_of: dict[str, Path] = {}
    gatherer = Gatherer("coco", lambda image: [photos_of[image] / image])
    for captions, photos in halves.items():
        content = parse_json(read_text(captions), CocoFile, captions)
        name_of: dict[int, str] = {}
        for number, image in enumerate(content.images):
            where = f"{captions}, images[{number}]"
            if image.id in name_of or image.file_name in gatherer.captions:
                raise FishermixError(f"{where}: the image {image.file_name!r} is listed twice.")
            name_of[image.id] = image.file_name
            photos_of[image.file_name] = photos
            gatherer.add(image.file_name, [], where)
        for annotation in content.annotations:
            if annotation.image_id in name_of:
                gatherer.add(name_of[annotation.image_id], [annotation.caption], str(captions))
    return gatherer.build_dataset(" and ".join(map(str, halves.values())), COCO_PROTOCOL)


# Pascal1K: 1,000 images, 4,998 sentences, as one JSON file or as the original folders of text files

PASCAL_SOURCE = (
    "Pascal1K is the UIUC Pascal sentence data set of Rashtchian et al. (search for that name), with "
    "sentences in sentence/CLASS/NAME.txt or in pascal_sentences.json, and photos in images/."
)


class PascalImage(Struct):
    captions: list[str]
    category: str = ""


def read_pascal1k(folder: Path) -> Dataset:
    """No official splits; 800 / 100 / 100 images are drawn twenty times."""
    folders = ("images", "image", "dataset")
    captions = find(folder, ["pascal_sentences.json", "sentence"], "Pascal1K's sentences", PASCAL_SOURCE)
    find(folder, folders, "Pascal1K's folder of photos", PASCAL_SOURCE)
    records: dict[str, PascalImage] = {}
    if captions.is_dir():
        for path in sorted(captions.glob("*/*.txt")):
            if f"{path.stem}.jpg" in records:
                raise FishermixError(
                    f"{path}: another class folder contains sentences of {path.stem}.jpg too."
                )
            sentences = [line for _, line in read_lines(path)]
            records[f"{path.stem}.jpg"] = PascalImage(sentences, path.parent.name)
    else:
        records = parse_json(read_text(captions), dict[str, PascalImage], captions)

    def locate(image: str) -> list[Path]:
        category = records[image].category
        inside = [image, f"{category}/{image}"] if category.isidentifier() else [image]
        return [folder / name / path for path in inside for name in folders]

    gatherer = Gatherer("pascal1k", locate)
    for image, record in records.items():
        gatherer.add(image, record.captions, f"{captions}, image {image!r}")
    return gatherer.build_dataset(str(folder / "images"), Protocol(dev=100, test=100, repeats=20))


# A folder of photos with `captions.csv` or `captions.jsonl`

FOLDER_SOURCE = (
    "Write captions.csv with the columns image,caption[,split] and one caption per row, or captions.jsonl "
    'with lines like {"image": "a.jpg", "captions": ["…"], "split": "train"}.'
)


class FolderImage(Struct):
    image: str
    captions: list[str]
    split: str | None = None


def read_folder(folder: Path) -> Dataset:
    """Read photos in the folder or in `images/`; without splits, every image is a training image."""
    names = ("captions.csv", "captions.jsonl")
    captions = find(folder, names, "the caption file", FOLDER_SOURCE)
    if all((folder / name).exists() for name in names):
        raise FishermixError(f"{folder} contains captions.csv and captions.jsonl. Keep one of them.")
    gatherer = Gatherer("folder", lambda image: [folder / image, folder / "images" / image])
    if captions.suffix == ".jsonl":
        for where, line in read_lines(captions):
            record = parse_json(line, FolderImage, where)
            gatherer.add(record.image, record.captions, where, record.split)
    else:
        _gather_table(captions, gatherer)
    if not any(gatherer.split.values()):
        gatherer.split = dict.fromkeys(gatherer.captions, "train")
    return gatherer.build_dataset(f"{folder} and {folder / 'images'}")


def _gather_table(captions: Path, gatherer: Gatherer) -> None:
    rows = csv.DictReader(io.StringIO(read_text(captions), newline=""), strict=True)
    try:
        header = rows.fieldnames = [column.strip().lower() for column in rows.fieldnames or ()]
        missing = " and ".join(column for column in ("image", "caption") if column not in header)
        if missing:
            raise FishermixError(
                f"{captions}, line 1: the header {header} has no column {missing}. {FOLDER_SOURCE}"
            )
        for row in rows:
            where = f"{captions}, line {rows.line_num}"
            if None in row or None in row.values():
                raise FishermixError(
                    f"{where}: the row does not have {len(header)} fields, as the header has. "
                    "Put captions with commas in quotation marks."
                )
            gatherer.add(row["image"].strip(), [row["caption"]], where, row.get("split"))
    except csv.Error as error:
        raise FishermixError(f"{captions}, line {rows.reader.line_num}: {error}.") from None


READERS: dict[str, Callable[[Path], Dataset]] = {
    "flickr8k": read_flickr8k,
    "flickr8k-official": partial(read_flickr8k, official=True),
    "flickr30k": read_flickr30k,
    "pascal1k": read_pascal1k,
    "coco": read_coco,
    "folder": read_folder,
}
KINDS = ("karpathy", *READERS)
