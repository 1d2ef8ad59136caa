"""Readers of the data sets, each with the place to get it from; `open_dataset` opens one by `KIND:PATH`.

Caption files are not trusted: they name files to open.
"""

from __future__ import annotations

import csv
import io
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TypeVar

import msgspec
import numpy as np
from fishermix.errors import FishermixError
from msgspec import Struct

from fishermix_lab.datasets.dataset import SPLITS, Dataset, Protocol, combine

__all__ = ["KINDS", "SPLITS", "Dataset", "Protocol", "combine", "open_dataset"]

log = logging.getLogger("fishermix")

T = TypeVar("T")
SPLIT_OF = {
    "": "",
    "train": "train",
    "restval": "train",
    "dev": "dev",
    "val": "dev",
    "validation": "dev",
    "test": "test",
}


def open_dataset(spec: str) -> Dataset:
    """Read the data set `KIND:PATH`.

    Parameters
    ----------
    spec : str
        `flickr8k:DIR`, `folder:DIR` or another kind of `READERS`, or `karpathy:FILE.json:IMAGES_DIR`.

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
        raise FishermixError(f"{spec!r} is not a data set. Write {FORMS}.", code="wrong_parameter")
    if kind == "karpathy":
        stem, json_colon, photos = path.rpartition(".json:")
        if not (stem and json_colon and photos):
            raise FishermixError(
                f"{spec!r} does not name a folder of photos. Write karpathy:FILE.json:IMAGES_DIR.",
                code="wrong_parameter",
            )
        return read_karpathy(Path(f"{stem}.json").expanduser(), Path(photos).expanduser())
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise FishermixError(f"There is no folder {folder} (data set {spec}).", code="not_found")
    return READERS[kind](folder)


# What all readers share: reading text and JSON, checking image names, collecting captions by image


def find(folder: Path, names: Iterable[str], what: str, source: str) -> Path:
    """The first of these that exists; if there is none, an error that says where to get it."""
    paths = [folder / name for name in names]
    for path in paths:
        if path.exists():
            return path
    raise FishermixError(
        f"Cannot find {what}. Searched {' or '.join(map(str, paths))}. {source}", code="not_found"
    )


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark; the error about an invalid byte names its line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FishermixError(f"Cannot read {path}: {error.strerror}.", code="wrong_file") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FishermixError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8. Save the file as UTF-8.",
            code="wrong_file",
        ) from None


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (where, line) for every line that is not blank; `where` is file and line for messages."""
    # Not str.splitlines: captions may hold characters such as U+2028 that it would split at.
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            yield f"{path}, line {number}", line.rstrip("\r")


def parse_json(text: str, schema: type[T], where: str | Path) -> T:
    """The value of this schema in a JSON text; an error names the place."""
    try:
        return msgspec.json.decode(text, type=schema)
    except (msgspec.DecodeError, ValueError) as error:
        raise FishermixError(f"{where}: {error}.", code="wrong_file") from None
    except RecursionError:
        raise FishermixError(
            f"{where}: the JSON is nested too deeply for a caption file.", code="wrong_file"
        ) from None


def parse_image_name(name: str, where: str) -> str:
    """The name, if it stays inside the image folder on every operating system."""
    posix = PurePosixPath(name)
    windows = PureWindowsPath(name)
    outside = posix.is_absolute() or windows.drive or windows.root or ".." in posix.parts + windows.parts
    if outside or "\0" in name or posix.name in ("", "."):
        raise FishermixError(
            f"{where}: invalid image name {name!r}. It must be a file inside the image folder.",
            code="wrong_file",
        )
    return name


class Gatherer:
    """Collects captions by image, in the order of appearance, and builds the data set.

    locate : lists the files where the photo of an image may be
    """

    def __init__(self, name: str, locate: Callable[[str], Iterable[Path]]):
        self.name = name
        self.locate = locate
        self.captions: dict[str, list[str]] = {}
        self.split: dict[str, str] = {}

    def add(self, image: str, captions: Iterable[str], where: str, split: str | None = None) -> None:
        """Add captions to an image; an image may occur several times, but in one split only."""
        if image not in self.captions:
            self.captions[parse_image_name(image, where)] = []
        if split is not None:
            if split.strip().lower() not in SPLIT_OF:
                raise FishermixError(
                    f"{where}: unknown split {split!r}. Use train, val or test.", code="wrong_file"
                )
            split = SPLIT_OF[split.strip().lower()]
            if self.split.setdefault(image, split) != split:
                raise FishermixError(
                    f"{where}: the image {image!r} is in two splits, {self.split[image]} and {split}.",
                    code="wrong_file",
                )
        cleaned = (" ".join(caption.split()) for caption in captions)
        self.captions[image] += [caption for caption in cleaned if caption]

    def build_dataset(self, searched: str, protocol: Protocol | None = None) -> Dataset:
        """The data set of all images with captions and a file; `searched` is the folders, for messages."""
        paths = self._locate_photos(searched)
        kept = list(paths)
        splits = np.array([self.split.get(name, "") for name in kept], dtype="U5")
        if protocol and len(kept) > protocol.dev + protocol.test:
            splits = protocol.draw(len(kept), repeat=0)
        return Dataset(
            name=self.name,
            image_names=kept,
            image_paths=list(paths.values()),
            sentences=[caption for name in kept for caption in self.captions[name]],
            image_of=np.repeat(np.arange(len(kept)), [len(self.captions[name]) for name in kept]),
            splits=splits,
            protocol=protocol,
        )

    def _locate_photos(self, searched: str) -> dict[str, Path]:
        """The file of each image that has captions, by name; up to 1 % may be missing."""
        named = [name for name, captions in self.captions.items() if captions]
        if not named:
            raise FishermixError(f"{self.name} has no captions. Searched {searched}.", code="wrong_file")
        found = {name: next(filter(os.path.isfile, self.locate(name)), None) for name in named}
        paths = {name: path for name, path in found.items() if path}
        missing = [name for name in named if name not in paths]
        if missing:
            listed = 3  # names in the message
            more = f" and {len(missing) - listed} more" if len(missing) > listed else ""
            report = (
                f"{self.name}: {len(missing)} of the {len(named)} photos with captions do not exist: "
                f"{', '.join(missing[:listed])}{more}. Searched {searched}."
            )
            # A few photos are missing in most copies; more means a wrong folder.
            if len(missing) > 0.01 * len(named):
                raise FishermixError(
                    f"{report} Up to 1 % may be missing: add the photos, or remove their captions.",
                    code="wrong_file",
                )
            log.warning("%s They and their captions are skipped.", report)
        return paths


# Flickr8K and Flickr30K: one caption per line, `NAME.jpg#NUMBER<TAB>caption`

FLICKR_SOURCE = (
    "The University of Illinois provides it: search for 'Flickr8k' or 'Flickr30k dataset request form'."
)
NO_SUCH_PHOTO = "2258277193_586949ec62.jpg.1"  # has captions, but was never published


def read_flickr8k(folder: Path) -> Dataset:
    """8,091 images, 40,455 sentences, and official dev and test splits of 1,000 images each.

    The other 6,091 are training images, as in the paper; the official list has only 6,000 of them.
    """

    def find_text(name: str) -> Path:
        return find(folder, [name, f"Flickr8k_text/{name}"], f"Flickr8K's {name}", FLICKR_SOURCE)

    captions = find_text("Flickr8k.token.txt")
    lists = {split: find_text(f"Flickr_8k.{split}Images.txt") for split in ("dev", "test")}
    folders = ("Images", "Flicker8k_Dataset", "Flickr8k_Dataset")
    photos = find(folder, folders, "Flickr8K's folder of photos", FLICKR_SOURCE)
    gatherer = _gather_flickr("flickr8k", captions, photos)
    gatherer.captions.pop(NO_SUCH_PHOTO, None)
    for split, path in lists.items():
        for where, line in read_lines(path):
            if line.strip() not in gatherer.captions:
                raise FishermixError(
                    f"{where}: {line.strip()!r} has no captions in {captions}.", code="wrong_file"
                )
            gatherer.add(line.strip(), [], where, split)
    for name in gatherer.captions:
        gatherer.split.setdefault(name, "train")
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
            raise FishermixError(
                f"{where}: expected NAME.jpg#NUMBER<TAB>caption, found {line[:60]!r}.", code="wrong_file"
            )
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
                raise FishermixError(
                    f"{where}: the image {image.file_name!r} is listed twice.", code="wrong_file"
                )
            name_of[image.id] = image.file_name
            photos_of[image.file_name] = photos
            gatherer.add(image.file_name, [], where)
        for annotation in content.annotations:
            if annotation.image_id in name_of:
                gatherer.add(name_of[annotation.image_id], [annotation.caption], str(captions))
    return gatherer.build_dataset(" and ".join(map(str, halves.values())), COCO_PROTOCOL)


# Pascal1K: 1,000 images, 4,998 sentences, in one text file per image

PASCAL_SOURCE = (
    "Pascal1K is the UIUC Pascal sentence data set of Rashtchian et al. (search for that name), with "
    "sentences in sentence/CLASS/NAME.txt, and photos in images/."
)


def read_pascal1k(folder: Path) -> Dataset:
    """No official splits; 800 / 100 / 100 images are drawn twenty times."""
    captions = find(folder, ["sentence"], "Pascal1K's sentences", PASCAL_SOURCE)
    folders = ("images", "image", "dataset")
    photos = find(folder, folders, "Pascal1K's folder of photos", PASCAL_SOURCE)
    class_of: dict[str, str] = {}
    gatherer = Gatherer("pascal1k", lambda image: [photos / image, photos / class_of[image] / image])
    for path in sorted(captions.glob("*/*.txt")):
        image = f"{path.stem}.jpg"
        if image in class_of:
            raise FishermixError(
                f"{path}: another class folder contains sentences of {image} too.", code="wrong_file"
            )
        class_of[image] = path.parent.name
        gatherer.add(image, [line for _, line in read_lines(path)], str(path))
    return gatherer.build_dataset(str(photos), Protocol(dev=100, test=100, repeats=20))


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
        raise FishermixError(
            f"{folder} contains captions.csv and captions.jsonl. Keep one of them.", code="wrong_file"
        )
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
                f"{captions}, line 1: the header {header} has no column {missing}. {FOLDER_SOURCE}",
                code="wrong_file",
            )
        for row in rows:
            where = f"{captions}, line {rows.line_num}"
            if None in row or None in row.values():
                raise FishermixError(
                    f"{where}: the row does not have {len(header)} fields, as the header has. "
                    "Put captions with commas in quotation marks.",
                    code="wrong_file",
                )
            gatherer.add(row["image"].strip(), [row["caption"]], where, row.get("split"))
    except csv.Error as error:
        raise FishermixError(
            f"{captions}, line {rows.reader.line_num}: {error}.", code="wrong_file"
        ) from None


READERS: dict[str, Callable[[Path], Dataset]] = {
    "flickr8k": read_flickr8k,
    "flickr30k": read_flickr30k,
    "pascal1k": read_pascal1k,
    "coco": read_coco,
    "folder": read_folder,
}
KINDS = ("karpathy", *READERS)
FORMS = f"{', '.join(f'{kind}:DIR' for kind in READERS)} or karpathy:FILE.json:IMAGES_DIR"
