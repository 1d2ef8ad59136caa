"""The photos that the model in the package learns from, as folders with captions.jsonl.

    python tools/prepare_photos.py COCO COCO320 IAPR OUT

COCO has photos squeezed to squares, COCO320 some of them with their own proportions, IAPR the holiday photos
of IAPR TC-12. Writes OUT/coco, the training photos of COCO that COCO320 lacks, and OUT/iapr, where every
seventeenth photo is to choose by ("val"). The pictures are linked, not copied.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def read_captions(folder: Path) -> list[dict[str, Any]]:
    with (folder / "captions.jsonl").open(encoding="utf8") as lines:
        return [json.loads(line) for line in lines]


def write_folder(folder: Path, images: Path, rows: Iterable[dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "images"
    if not link.exists():
        link.symlink_to(images.resolve(), target_is_directory=True)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (folder / "captions.jsonl").write_text("".join(lines), "utf8")
    print(f"{folder}: {len(lines)} photos")


def main(coco: Path, coco320: Path, iapr: Path, out: Path) -> None:
    unsqueezed = {row["image"] for row in read_captions(coco320)}
    rest = (row for row in read_captions(coco) if row["split"] == "train" and row["image"] not in unsqueezed)
    write_folder(out / "coco", coco / "images", rest)
    numbered = enumerate(read_captions(iapr))
    rows = (row if number % 17 else row | {"split": "val"} for number, row in numbered)
    write_folder(out / "iapr", iapr / "images", rows)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*map(Path, sys.argv[1:]))
