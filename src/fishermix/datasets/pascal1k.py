"""Pascal1K: 1,000 images, 4,998 sentences, as one JSON file or as the original folders of text files."""

from __future__ import annotations

from pathlib import Path

from fishermix.datasets.dataset import Dataset, Protocol
from fishermix.datasets.parsing import Gatherer, find, parse_field, parse_json, read_lines, read_text
from fishermix.errors import FishermixError

SOURCE = (
    "Pascal1K is the UIUC Pascal sentence data set of Rashtchian et al. (search for that name), with "
    "sentences in sentence/CLASS/NAME.txt or in pascal_sentences.json, and photos in images/."
)
PROTOCOL = Protocol(dev=100, test=100, repeats=20)


def read_pascal1k(folder: Path) -> Dataset:
    """No official splits; 800 / 100 / 100 images are drawn twenty times.

    Parameters
    ----------
    folder : path
        The folder of the data set.
    """
    captions = find([folder / "pascal_sentences.json", folder / "sentence"], "Pascal1K's sentences", SOURCE)
    find([folder / name for name in ("images", "image", "dataset")], "Pascal1K's folder of photos", SOURCE)
    category: dict[str, str] = {}

    def locate(image: str) -> list[Path]:
        inside = [image, f"{category[image]}/{image}"] if category[image] else [image]
        return [folder / name / path for path in inside for name in ("images", "image", "dataset")]

    gatherer = Gatherer("pascal1k", locate)
    if captions.is_dir():
        for path in sorted(captions.glob("*/*.txt")):
            image = f"{path.stem}.jpg"
            if image in gatherer.captions:
                raise FishermixError(f"{path}: another class folder contains sentences of {image} too.")
            category[image] = path.parent.name
            gatherer.add(image, [line for _, line in read_lines(path)], str(path))
    else:
        records = parse_json(read_text(captions), str(captions))
        if not isinstance(records, dict):
            raise FishermixError(f'{captions}: expected {{"NAME.jpg": {{"captions": […]}}, …}}.')
        for image, record in records.items():
            where = f"{captions}, image {image!r}"
            label = record.get("category") if isinstance(record, dict) else None
            category[image] = label if isinstance(label, str) and label.isidentifier() else ""
            gatherer.add(image, parse_field(record, "captions", list, where), where)
    return gatherer.build_dataset(str(folder / "images"), PROTOCOL)
