"""Writes the retrieval tables of docs/results.md: python tools/document_results.py

The published rows come from `fishermix_photos.lab.tables`, ours from results/*.json and, for the model in the
package, from the figures that `fishermix evaluate --json` wrote. A test compares the page with them.

A file in results/ has a heading, the command that printed its rows, and rows of a label and eleven figures in
the order of `TABLE_COLUMNS`. `"rerun": true` marks rows that an earlier version measured.
"""

import json
import re
from pathlib import Path

from fishermix_photos.lab.tables import TABLE_COLUMNS, read_published
from fishermix_photos.model import SHIPPED

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results.md"
PUBLISHED = read_published()
NETWORKS = {"OverFeat": "paper, OverFeat", "VGG": "paper, VGG-19"}
Line = tuple[str, tuple[float | None, ...]]  # a label and its figures; no figures for a heading or a remark


def list_published(table: str) -> list[Line]:
    """All rows of a table of the paper, with a heading per network."""
    lines: list[Line] = []
    encoder = "published"
    for row in PUBLISHED[table]:
        if row.encoder != encoder:
            lines.append((NETWORKS[row.encoder], ()))
        encoder = row.encoder
        lines.append((row.variant, row.figures))
    return lines


def list_measured(name: str) -> list[Line]:
    """The rows of a file in results/ with its heading."""
    found = json.loads((ROOT / "results" / f"{name}.json").read_text("utf8"))
    mark = " †" if found.get("rerun") else ""
    return [(found["heading"], ()), *((row["label"] + mark, tuple(row["figures"])) for row in found["rows"])]


def list_package(name: str) -> list[Line]:
    """The row of the model in the package."""
    figures = json.loads((SHIPPED / f"figures-{name}.json").read_text("utf8"))
    return [("the model in the package", tuple(figures[task][measure] for task, measure in TABLE_COLUMNS))]


def list_remark(text: str) -> list[Line]:
    """A line that says why there are no rows of ours."""
    return [(f"fishermix: {text}", ())]


TABLES = {
    "flickr8k": list_published("flickr8k") + list_measured("flickr8k-paper"),
    "flickr8k-best": list_measured("flickr8k-best")
    + list_measured("flickr8k-best-resnet50")
    + [(NETWORKS["VGG"], ()), list_published("flickr8k")[-1]]
    + list_measured("flickr8k-later"),
    "flickr8k-transformer": list_measured("flickr8k-transformer") + list_package("flickr8k"),
    "flickr30k": list_published("flickr30k") + list_remark("not measured, the photos cannot be had"),
    "pascal1k": list_published("pascal1k") + list_remark("not measured, the photos cannot be had"),
    "coco-1k": list_published("coco-1k") + list_remark("1,000 of 4,407 photos") + list_package("coco"),
    "coco-5k": list_published("coco-5k") + list_remark("not measured yet (4,407 photos)"),
}
HALVES = {"Image search": slice(0, 5), "Image annotation, sentence similarity": slice(5, 11)}


def format_table(name: str) -> str:
    """A table as two tables in Markdown: one number per cell and few columns, for narrow screens."""
    tables = []
    for title, columns in HALVES.items():
        names = [
            "similarity mean" if task == "similarity" else measure for task, measure in TABLE_COLUMNS[columns]
        ]
        rows = [f"| {title} | {' | '.join(names)} |", f"|---|{'--:|' * len(names)}"]
        for label, figures in TABLES[name]:
            cells = [_format(value) for value in figures[columns]] if figures else [""] * len(names)
            rows.append(f"| {label if figures else f'**{label}**'} | {' | '.join(cells)} |")
        tables.append("\n".join(rows))
    return "\n\n".join(tables)


def _format(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def write_tables(text: str) -> str:
    """The page with its tables written again."""

    def replace(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n{format_table(found[1])}\n<!-- end -->"

    return re.sub(r"(?s)<!-- table: (\S+) -->\n.*?<!-- end -->", replace, text)


if __name__ == "__main__":
    PAGE.write_text(write_tables(PAGE.read_text("utf8")), "utf8")
