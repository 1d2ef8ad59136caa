"""Any folder of photos with `captions.csv`, `captions.tsv` or `captions.jsonl` beside them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from fishermix.datasets.dataset import Dataset
from fishermix.datasets.parsing import Gatherer, find, lines_of, member, parse_json, read_text
from fishermix.errors import FishermixError

SOURCE = (
    "Write captions.csv with the columns image,caption[,split], one caption a row, or captions.jsonl with "
    'lines like {"image": "a.jpg", "captions": ["…"], "split": "train"}.'
)
KINDS = ("csv", "tsv", "jsonl")
COLUMNS = ("image", "caption")


def read_folder(folder: Path) -> Dataset:
    """Photos in the folder or in its `images/`; without any split, every image is a training image."""
    candidates = [folder / f"captions.{kind}" for kind in KINDS]
    captions = find(candidates, "the caption file", SOURCE)
    rivals = [path.name for path in candidates if path.exists()]
    if len(rivals) > 1:
        raise FishermixError(f"{folder} has {' and '.join(rivals)}: keep one of them")
    gatherer = Gatherer("folder", lambda image: [folder / image, folder / "images" / image])
    if captions.suffix == ".jsonl":
        _gather_lines(captions, gatherer)
    else:
        _gather_table(captions, gatherer)
    if not any(gatherer.split.values()):
        gatherer.split = dict.fromkeys(gatherer.captions, "train")
    return gatherer.dataset(f"{folder} and {folder / 'images'}")


def _gather_lines(captions: Path, gatherer: Gatherer) -> None:
    for where, line in lines_of(captions):
        record = parse_json(line, where)
        split = record.get("split") if isinstance(record, dict) else None
        if split is not None and not isinstance(split, str):
            raise FishermixError(f"{where}: 'split' should be train, val or test")
        gatherer.add(
            member(record, "image", str, where), member(record, "captions", list, where), where, split
        )


def _gather_table(captions: Path, gatherer: Gatherer) -> None:
    # Tab-separated captions are rarely quoted, and then a lone quotation mark belongs to the caption.
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
                f"{captions}, line 1: no column {' and '.join(absent)} in the header {header}. {SOURCE}"
            )
        for row in rows:
            where = f"{captions}, line {rows.line_num}"
            if not any(field.strip() for field in row):
                continue
            if len(row) != len(header):
                raise FishermixError(
                    f"{where}: {len(row)} fields under {len(header)} columns; "
                    "put a caption with commas in quotation marks"
                )
            record = dict(zip(header, row))
            gatherer.add(record["image"].strip(), [record["caption"]], where, record.get("split"))
    except csv.Error as error:
        raise FishermixError(f"{captions}, line {rows.line_num}: {error}") from None
