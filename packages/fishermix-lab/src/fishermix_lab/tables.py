"""A reproduction next to the tables of the paper (Klein et al., CVPR 2015).

`published.csv` contains those tables: the paper's own variants and the methods it compares with.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

from fishermix.joint.ranks import Comparison
from rich.markup import escape
from rich.table import Table

from fishermix_lab.reproduce import Result

MEASURES = ("r@1", "r@5", "r@10", "median", "mean")
TABLE_COLUMNS = (
    *(("search", measure) for measure in MEASURES),
    *(("annotation", measure) for measure in MEASURES),
    ("similarity", "mean"),
)


class TableRow(NamedTuple):
    """Figures in the order of `TABLE_COLUMNS`; None where nothing was published."""

    encoder: str
    variant: str
    figures: tuple[float | None, ...]


def read_published() -> dict[str, list[TableRow]]:
    """The rows of every published table."""
    tables: dict[str, list[TableRow]] = {}
    text = files("fishermix_lab").joinpath("published.csv").read_text("utf8")
    for table, encoder, variant, *cells in list(csv.reader(io.StringIO(text)))[1:]:
        figures = tuple(float(cell) if cell else None for cell in cells)
        tables.setdefault(table, []).append(TableRow(encoder, variant, figures))
    return tables


def find_table(name: str, test_images: int | None) -> str:
    """The published table to show next to a data set of this name."""
    for table in ("flickr8k", "flickr30k", "pascal1k"):
        if table in name:
            return table
    if "coco" in name:
        return "coco-1k" if test_images == 1000 else "coco-5k"
    return name


def as_text(table: str, results: Sequence[Result]) -> Table:
    """A table for the terminal: the published rows, then ours with their deviations over the seeds."""
    title = f"{table}: search | annotation | sentences"
    text = Table("images", "variant", title=title, title_justify="left")
    short = {"search": "search", "annotation": "annot.", "similarity": "sent."}
    for task, measure in TABLE_COLUMNS:
        text.add_column(f"{short[task]}\n{measure}", justify="right")
    for row in read_published().get(table, []):
        cells = ("" if figure is None else f"{figure:.1f}" for figure in row.figures)
        text.add_row(row.encoder, row.variant, *cells)
    for result in results:
        cells = (_format_cell(result, *column) for column in TABLE_COLUMNS)
        text.add_row(f"fishermix, {result.encoder}", result.label, *cells, style="bold")
    return text


def _format_cell(result: Result, task: str, measure: str) -> str:
    figure, deviation = (one.get(task, {}).get(measure) for one in (result.figures, result.deviation))
    spread = "" if deviation is None else f"\n±{deviation:.1f}"
    return "" if figure is None else f"{figure:.1f}{spread}"


def format_comparisons(compared: Mapping[str, Mapping[str, Comparison]]) -> Table:
    """Differences of recalls with their 95 % intervals, for the terminal."""
    title = "Differences in points, with 95 % intervals of a bootstrap over the test images"
    text = Table("", *next(iter(compared.values())), title=title, title_justify="left")
    for pair, found in compared.items():
        text.add_row(
            pair,
            *(escape(f"{one.difference:+.1f} [{one.low:+.1f}, {one.high:+.1f}]") for one in found.values()),
        )
    return text
