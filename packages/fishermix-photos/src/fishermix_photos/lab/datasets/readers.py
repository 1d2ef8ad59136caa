"""Readers of the data sets, each with the place to get it from; `open_dataset` opens one by `KIND:PATH`."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fishermix.errors import FishermixError

from fishermix_photos.lab.datasets.dataset import Dataset, Protocol
from fishermix_photos.lab.datasets.parsing import (
    Gatherer,
    count,
    find,
    parse_field,
    parse_image_name,
    read_json,
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

FLICKR8K_SOURCE = (
    "Flickr8K (Hodosh, Young and Hockenmaier) consists of Flickr8k_text.zip and Flickr8k_Dataset.zip. The "
    "University of Illinois (search for 'Flickr8k dataset request form') and mirrors provide it for research."
)
FLICKR30K_SOURCE = (
    "Flickr30K (Young et al.) consists of flickr30k.tar.gz (captions) and flickr30k-images.tar. The "
    "University of Illinois (search for 'Flickr30k dataset request form') provides it for research."
)
NO_SUCH_PHOTO = "2258277193_586949ec62.jpg.1"  # has captions, but was never published


def read_flickr8k(folder: Path, official: bool = False) -> Dataset:
    """8,091 images, 40,455 sentences, and official dev and test splits of 1,000 images each.

    The other 6,091 are training images, as in the paper; or only the 6,000 of the official list.
    """
    splits = ("train", "dev", "test") if official else ("dev", "test")

    def find_text(name: str) -> Path:
        return find([folder / name, folder / "Flickr8k_text" / name], f"Flickr8K's {name}", FLICKR8K_SOURCE)

    captions = find_text("Flickr8k.token.txt")
    lists = {split: find_text(f"Flickr_8k.{split}Images.txt") for split in splits}
    photos = find(
        [folder / name for name in ("Images", "Flicker8k_Dataset", "Flickr8k_Dataset")],
        "Flickr8K's folder of photos",
        FLICKR8K_SOURCE,
    )
    gatherer = _gather_flickr("flickr8k-official" if official else "flickr8k", captions, photos)
    ghosts = gatherer.captions.pop(NO_SUCH_PHOTO, [])
    if ghosts:
        gatherer.problems.append(
            f"Skipped {len(ghosts)} captions of {NO_SUCH_PHOTO}, a photo that was never published."
        )
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
    captions = find([folder / "results_20130124.token"], "Flickr30K's caption file", FLICKR30K_SOURCE)
    photos = find(
        [folder / name for name in ("flickr30k-images", "flickr30k_images", "images")],
        "Flickr30K's folder of photos",
        FLICKR30K_SOURCE,
    )
    return _gather_flickr("flickr30k", captions, photos).build_dataset(
        str(photos), Protocol(dev=1000, test=1000, repeats=5)
    )


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
    "Karpathy's dataset_flickr8k.json, dataset_flickr30k.json and dataset_coco.json are in the file "
    "caption_datasets.zip on his page 'Deep Visual-Semantic Alignments'. The photos come with the data sets."
)
KARPATHY_NAMES = ("flickr8k", "flickr30k", "coco")


def read_karpathy(captions: Path, photos: Path) -> Dataset:
    """Read the keys `images[].filename|filepath|split|sentences[].raw|tokens`; `restval` is training data.

    A photo is searched in `photos/filepath/filename` and in `photos/filename`.
    """
    find([captions], "Karpathy's JSON", KARPATHY_SOURCE)
    find([photos], "the folder of photos", KARPATHY_SOURCE)
    content = read_json(read_text(captions), str(captions))
    folder_of: dict[str, str] = {}

    def locate(image: str) -> list[Path]:
        return [photos / folder_of[image] / image, photos / image]

    stated = content.get("dataset") if isinstance(content, dict) else None
    gatherer = Gatherer(stated if stated in KARPATHY_NAMES else "karpathy", locate)
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


# COCO 2014: `annotations/captions_{train,val}2014.json`, `train2014/` and `val2014/`

COCO_SOURCE = (
    "COCO is at cocodataset.org under 'Download': 2014 Train images, 2014 Val images, "
    "2014 Train/Val annotations. Unpack all three into one folder."
)
COCO_PROTOCOL = Protocol(dev=5000, test=5000, repeats=5)


def read_coco(folder: Path) -> Dataset:
    """123,287 images; the paper draws 5,000 validation and 5,000 test images at random, five times."""
    photos_of: dict[str, Path] = {}
    gatherer = Gatherer("coco", lambda image: [photos_of[image] / image])
    halves = {}
    for half in ("train2014", "val2014"):
        files = [folder / "annotations" / f"captions_{half}.json"]
        folders = [folder / half, folder / "images" / half]
        captions = find(files, f"COCO's captions of {half}", COCO_SOURCE)
        halves[captions] = find(folders, f"COCO's folder of {half} photos", COCO_SOURCE)
    for captions, photos in halves.items():
        for image in _gather_coco(captions, gatherer):
            photos_of[image] = photos
    searched = " and ".join(str(photos) for photos in halves.values())
    return gatherer.build_dataset(searched, COCO_PROTOCOL)


def _gather_coco(captions: Path, gatherer: Gatherer) -> list[str]:
    """Add the captions of one file; returns the names of its images."""
    content = read_json(read_text(captions), str(captions))
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


# Pascal1K: 1,000 images, 4,998 sentences, as one JSON file or as the original folders of text files

PASCAL_SOURCE = (
    "Pascal1K is the UIUC Pascal sentence data set of Rashtchian et al. (search for that name), with "
    "sentences in sentence/CLASS/NAME.txt or in pascal_sentences.json, and photos in images/."
)


def read_pascal1k(folder: Path) -> Dataset:
    """No official splits; 800 / 100 / 100 images are drawn twenty times."""
    files, folders = ("pascal_sentences.json", "sentence"), ("images", "image", "dataset")
    captions = find([folder / name for name in files], "Pascal1K's sentences", PASCAL_SOURCE)
    find([folder / name for name in folders], "Pascal1K's folder of photos", PASCAL_SOURCE)
    category: dict[str, str] = {}

    def locate(image: str) -> list[Path]:
        inside = [image, f"{category[image]}/{image}"] if category[image] else [image]
        return [folder / name / path for path in inside for name in folders]

    gatherer = Gatherer("pascal1k", locate)
    if captions.is_dir():
        for path in sorted(captions.glob("*/*.txt")):
            image = f"{path.stem}.jpg"
            if image in gatherer.captions:
                raise FishermixError(f"{path}: another class folder contains sentences of {image} too.")
            category[image] = path.parent.name
            gatherer.add(image, [line for _, line in read_lines(path)], str(path))
    else:
        records = read_json(read_text(captions), str(captions))
        if not isinstance(records, dict):
            raise FishermixError(f'{captions}: expected {{"NAME.jpg": {{"captions": […]}}, …}}.')
        for image, record in records.items():
            where = f"{captions}, image {image!r}"
            label = record.get("category") if isinstance(record, dict) else None
            category[image] = label if isinstance(label, str) and label.isidentifier() else ""
            gatherer.add(image, parse_field(record, "captions", list, where), where)
    return gatherer.build_dataset(str(folder / "images"), Protocol(dev=100, test=100, repeats=20))


# A folder of photos with `captions.csv` or `captions.jsonl`

FOLDER_SOURCE = (
    "Write captions.csv with the columns image,caption[,split] and one caption per row, or captions.jsonl "
    'with lines like {"image": "a.jpg", "captions": ["…"], "split": "train"}.'
)


def read_folder(folder: Path) -> Dataset:
    """Read photos in the folder or in `images/`; without splits, every image is a training image."""
    candidates = [folder / "captions.csv", folder / "captions.jsonl"]
    captions = find(candidates, "the caption file", FOLDER_SOURCE)
    if all(path.exists() for path in candidates):
        raise FishermixError(f"{folder} contains captions.csv and captions.jsonl. Keep one of them.")
    gatherer = Gatherer("folder", lambda image: [folder / image, folder / "images" / image])
    if captions.suffix == ".jsonl":
        _gather_lines(captions, gatherer)
    else:
        _gather_table(captions, gatherer)
    if not any(gatherer.split.values()):
        gatherer.split = dict.fromkeys(gatherer.captions, "train")
    return gatherer.build_dataset(f"{folder} and {folder / 'images'}")


def _gather_lines(captions: Path, gatherer: Gatherer) -> None:
    for where, line in read_lines(captions):
        record = read_json(line, where)
        split = record.get("split") if isinstance(record, dict) else None
        if split is not None and not isinstance(split, str):
            raise FishermixError(f"{where}: 'split' must be train, val or test.")
        gatherer.add(
            parse_field(record, "image", str, where),
            parse_field(record, "captions", list, where),
            where,
            split,
        )


def _gather_table(captions: Path, gatherer: Gatherer) -> None:
    rows = csv.reader(io.StringIO(read_text(captions), newline=""), strict=True)
    try:
        header = [column.strip().lower() for column in next(rows, [])]
        absent = [column for column in ("image", "caption") if column not in header]
        if absent:
            missing = " and ".join(absent)
            raise FishermixError(
                f"{captions}, line 1: the header {header} has no column {missing}. {FOLDER_SOURCE}"
            )
        for row in rows:
            where = f"{captions}, line {rows.line_num}"
            if not any(field.strip() for field in row):
                continue
            if len(row) != len(header):
                raise FishermixError(
                    f"{where}: the row has {len(row)} fields, the header {len(header)}. "
                    "Put captions with commas in quotation marks."
                )
            record = dict(zip(header, row))
            gatherer.add(record["image"].strip(), [record["caption"]], where, record.get("split"))
    except csv.Error as error:
        raise FishermixError(f"{captions}, line {rows.line_num}: {error}.") from None


READERS: dict[str, Callable[[Path], Dataset]] = {
    "flickr8k": read_flickr8k,
    "flickr8k-official": partial(read_flickr8k, official=True),
    "flickr30k": read_flickr30k,
    "pascal1k": read_pascal1k,
    "coco": read_coco,
    "folder": read_folder,
}
KINDS = ("karpathy", *READERS)
