"""A folder of photos with `captions.csv`, `captions.tsv` or `captions.jsonl`."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from fishermix.datasets.dataset import Dataset
from fishermix.datasets.parsing import Gatherer, find, parse_field, parse_json, read_lines, read_text
from fishermix.errors import FishermixError

SOURCE = (
    "Write captions.csv with the columns image,caption[,split] and one caption per row, or captions.jsonl "
    'with lines like {"image": "a.jpg", "captions": ["…"], "split": "train"}.'
)
KINDS = ("csv", "tsv", "jsonl")
COLUMNS = ("image", "caption")


def read_folder(folder: Path) -> Dataset:
    """Read photos in the folder or in `images/`; without splits, every image is a training image.

    Parameters
    ----------
    folder : path
        The folder of the data set.
    """
    candidates = [folder / f"captions.{kind}" for kind in KINDS]
    captions = find(candidates, "the caption file", SOURCE)
    rivals = [path.name for path in candidates if path.exists()]
    if len(rivals) > 1:
        raise FishermixError(f"{folder} contains {' and '.join(rivals)}. Keep one of them.")
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
        record = parse_json(line, where)
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
    # Tab-separated captions are rarely quoted; a quotation mark in them is part of the caption.
    tabs = captions.suffix == ".tsv"
    rows = csv.reader(
        io.StringIO(read_text(captions), newline=""),
        delimiter="\t" if tabs else ",",
        quoting=csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL,
        strict=True,
    )
    try:
        header = [column.strip().lower() for column in next(rows, [])]
        absent = [column for column in COLUMNS if column not in header]
        if absent:
            raise FishermixError(
                f"{captions}, line 1: the header {header} has no column {' and '.join(absent)}. {SOURCE}"
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
