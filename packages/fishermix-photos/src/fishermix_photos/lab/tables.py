"""The tables of the paper (Klein et al., CVPR 2015), its own variants and the methods it compares with; and a
reproduction next to them, as text and CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table

from fishermix_photos.lab.reproduce import Result


class PublishedRow(NamedTuple):
    """Figures in the order of `COLUMNS`; None where nothing was published."""

    encoder: str
    variant: str
    figures: tuple[float | None, ...]


COLUMNS = (
    *(("search", measure) for measure in ("r@1", "r@5", "r@10", "median", "mean")),
    *(("annotation", measure) for measure in ("r@1", "r@5", "r@10", "median", "mean")),
    ("similarity", "mean"),
)

PUBLISHED: dict[str, tuple[PublishedRow, ...]] = {
    "flickr8k": (
        PublishedRow("", "GCS", (6.1, 18.5, 29.0, 29.0, None, 4.5, 18.0, 28.6, 32.0, None, None)),
        PublishedRow("", "SDT-RNN", (6.6, 21.6, 31.7, 25.0, None, 6.0, 22.7, 34.0, 23.0, None, None)),
        PublishedRow("", "DFE", (9.7, 29.6, 42.5, 15.0, None, 12.6, 32.9, 44.0, 14.0, None, None)),
        PublishedRow("", "BRNN", (11.8, 32.1, 44.7, 12.4, None, 16.5, 40.6, 54.2, 7.6, None, None)),
        PublishedRow("", "SC-NLM", (12.5, 37.0, 51.5, 10.0, None, 18.0, 40.9, 55.0, 8.0, None, None)),
        PublishedRow("", "NIC", (19.0, None, 64.0, 5.0, None, 20.0, None, 61.0, 6.0, None, None)),
        PublishedRow("", "m-RNN", (11.5, 31.0, 42.4, 15.0, None, 14.5, 37.2, 48.5, 11.0, None, None)),
        PublishedRow(
            "OverFeat", "Mean Vec", (11.3, 30.9, 44.0, 14.0, 48.0, 14.3, 33.9, 45.3, 13.0, 59.0, 13.6)
        ),
        PublishedRow("OverFeat", "GMM", (12.3, 33.4, 46.0, 13.0, 41.5, 18.0, 40.0, 50.1, 10.0, 46.1, 12.7)),
        PublishedRow("OverFeat", "LMM", (12.6, 32.9, 46.0, 13.0, 42.8, 18.9, 39.2, 49.9, 11.0, 46.8, 13.6)),
        PublishedRow("OverFeat", "HGLMM", (12.7, 33.6, 46.6, 12.0, 42.0, 19.4, 40.5, 50.9, 9.0, 46.0, 12.9)),
        PublishedRow(
            "OverFeat", "GMM+HGLMM", (13.0, 34.2, 47.3, 12.0, 40.3, 17.9, 41.2, 51.5, 10.0, 43.8, 12.3)
        ),
        PublishedRow("VGG", "Mean Vec", (19.1, 45.3, 60.4, 7.0, 27.0, 22.6, 48.8, 61.2, 6.0, 28.7, 12.5)),
        PublishedRow("VGG", "GMM", (20.6, 48.6, 64.0, 6.0, 31.6, 28.4, 57.7, 70.0, 4.0, 24.7, 12.0)),
        PublishedRow("VGG", "LMM", (19.8, 47.6, 62.6, 6.0, 33.7, 27.7, 56.5, 69.0, 4.0, 25.5, 13.0)),
        PublishedRow("VGG", "HGLMM", (20.2, 48.0, 62.7, 6.0, 30.8, 29.3, 58.1, 71.9, 4.0, 22.1, 14.0)),
        PublishedRow("VGG", "GMM+HGLMM", (21.3, 50.0, 64.6, 5.0, 30.3, 31.0, 59.3, 73.7, 4.0, 22.2, 11.9)),
    ),
    "flickr30k": (
        PublishedRow("", "DFE", (10.3, 31.4, 44.5, 13.0, None, 16.4, 40.2, 54.7, 8.0, None, None)),
        PublishedRow("", "BRNN", (15.2, 37.7, 50.5, 9.2, None, 22.2, 48.2, 61.4, 4.8, None, None)),
        PublishedRow("", "SC-NLM", (16.8, 42.0, 56.5, 8.0, None, 23.0, 50.7, 62.9, 5.0, None, None)),
        PublishedRow("", "NIC", (17.0, None, 57.0, 7.0, None, 17.0, None, 56.0, 7.0, None, None)),
        PublishedRow("", "m-RNN", (12.6, 31.2, 41.5, 16.0, None, 18.4, 40.2, 50.9, 10.0, None, None)),
        PublishedRow("", "LRCN", (14.0, 34.9, 47.0, 11.0, None, None, None, None, None, None, None)),
        PublishedRow(
            "OverFeat", "Mean Vec", (11.1, 29.3, 41.9, 16.0, 63.8, 14.3, 34.0, 43.9, 15.0, 73.8, 16.9)
        ),
        PublishedRow("OverFeat", "GMM", (14.2, 34.9, 47.7, 12.0, 50.0, 20.8, 42.7, 53.2, 9.0, 61.9, 17.6)),
        PublishedRow("OverFeat", "LMM", (14.0, 34.7, 47.3, 12.0, 53.2, 20.0, 41.0, 53.1, 9.0, 63.0, 18.4)),
        PublishedRow("OverFeat", "HGLMM", (14.9, 36.0, 48.3, 11.0, 50.8, 20.9, 41.7, 53.7, 8.0, 57.9, 16.5)),
        PublishedRow(
            "OverFeat", "GMM+HGLMM", (14.6, 36.6, 49.1, 11.0, 48.9, 21.2, 41.2, 55.4, 8.0, 56.2, 15.9)
        ),
        PublishedRow("VGG", "Mean Vec", (20.7, 47.2, 60.6, 6.0, 29.9, 24.5, 53.4, 65.6, 5.0, 24.9, 14.9)),
        PublishedRow("VGG", "GMM", (24.2, 51.7, 65.2, 5.0, 33.7, 31.8, 59.3, 71.7, 3.0, 20.0, 17.0)),
        PublishedRow("VGG", "LMM", (23.8, 51.7, 65.4, 5.0, 33.0, 31.2, 60.6, 73.1, 3.0, 21.1, 15.6)),
        PublishedRow("VGG", "HGLMM", (24.9, 52.3, 66.4, 5.0, 32.5, 33.2, 60.7, 72.4, 3.0, 18.8, 15.8)),
        PublishedRow("VGG", "GMM+HGLMM", (25.6, 53.2, 66.8, 5.0, 31.3, 33.3, 62.0, 74.7, 3.0, 18.7, 15.6)),
    ),
    "pascal1k": (
        PublishedRow("", "GCS", (16.4, 46.6, 65.6, None, 12.5, 23.0, 45.0, 63.0, None, 16.9, 10.5)),
        PublishedRow("", "SDT-RNN", (25.4, 65.2, 84.4, None, 7.0, 25.0, 56.0, 70.0, None, 13.4, None)),
        PublishedRow("", "DFE", (23.6, 65.2, 79.8, None, 7.6, 39.0, 68.0, 79.0, None, 10.5, None)),
        PublishedRow("OverFeat", "Mean Vec", (34.2, 75.7, 88.6, 2.1, 5.2, 39.8, 71.8, 84.0, 2.3, 6.9, 2.1)),
        PublishedRow("OverFeat", "GMM", (33.2, 73.9, 84.9, 2.4, 7.6, 42.6, 73.7, 83.9, 2.1, 8.5, 2.4)),
        PublishedRow("OverFeat", "LMM", (34.5, 74.9, 85.7, 2.2, 7.2, 42.7, 74.5, 84.8, 1.9, 8.6, 2.3)),
        PublishedRow("OverFeat", "HGLMM", (33.7, 74.5, 85.6, 2.3, 7.4, 41.8, 73.1, 84.5, 2.3, 8.5, 2.5)),
        PublishedRow("OverFeat", "GMM+HGLMM", (34.6, 75.2, 86.1, 2.2, 7.1, 43.3, 74.3, 85.1, 2.0, 8.4, 2.3)),
        PublishedRow("VGG", "Mean Vec", (44.9, 84.9, 94.2, 2.0, 3.5, 52.5, 83.3, 92.3, 1.3, 4.0, 2.0)),
        PublishedRow("VGG", "GMM", (43.2, 84.7, 92.7, 2.0, 4.5, 55.4, 85.7, 92.8, 1.1, 4.3, 2.3)),
        PublishedRow("VGG", "LMM", (42.9, 83.4, 92.2, 2.0, 4.6, 54.7, 84.5, 93.0, 1.1, 4.1, 2.4)),
        PublishedRow("VGG", "HGLMM", (43.2, 84.0, 92.4, 2.0, 4.7, 55.4, 85.4, 93.1, 1.2, 4.3, 2.4)),
        PublishedRow("VGG", "GMM+HGLMM", (43.9, 84.8, 93.2, 2.0, 4.4, 56.3, 85.9, 93.2, 1.2, 4.1, 2.3)),
    ),
    "coco-1k": (
        PublishedRow("", "BRNN", (20.9, 52.8, 69.2, 4.0, None, 29.4, 62.0, 75.9, 2.5, None, None)),
        PublishedRow("VGG", "Mean Vec", (24.2, 56.4, 72.4, 4.0, 14.7, 33.2, 61.8, 75.1, 3.0, 14.5, 14.3)),
        PublishedRow("VGG", "GMM", (24.7, 58.7, 75.6, 4.0, 13.3, 38.3, 66.1, 79.2, 3.0, 12.1, 13.9)),
        PublishedRow("VGG", "LMM", (24.8, 59.2, 75.4, 4.0, 12.8, 39.1, 68.4, 79.4, 2.0, 12.2, 13.9)),
        PublishedRow("VGG", "HGLMM", (25.1, 59.7, 76.5, 4.0, 12.7, 38.7, 68.4, 81.0, 2.0, 11.3, 13.7)),
        PublishedRow("VGG", "GMM+HGLMM", (25.6, 60.4, 76.8, 4.0, 12.3, 38.9, 68.4, 80.1, 2.0, 10.5, 13.2)),
    ),
    "coco-5k": (
        PublishedRow("", "BRNN", (8.9, 24.9, 36.3, 19.5, None, 11.8, 32.5, 45.4, 12.2, None, None)),
        PublishedRow("VGG", "Mean Vec", (10.3, 27.2, 38.4, 18.0, 64.7, 12.8, 32.1, 44.6, 14.0, 62.2, 63.7)),
        PublishedRow("VGG", "GMM", (10.5, 28.0, 39.4, 17.0, 62.3, 17.0, 38.1, 49.8, 11.0, 52.2, 58.0)),
        PublishedRow("VGG", "LMM", (10.5, 28.0, 39.7, 17.0, 61.3, 16.4, 38.1, 50.4, 10.0, 51.2, 57.0)),
        PublishedRow("VGG", "HGLMM", (11.1, 28.7, 40.2, 16.0, 59.0, 16.7, 38.4, 51.0, 10.0, 47.8, 56.2)),
        PublishedRow("VGG", "GMM+HGLMM", (11.2, 29.2, 41.0, 16.0, 57.2, 17.7, 40.1, 51.9, 10.0, 45.5, 54.5)),
    ),
}
SHORT_TASKS = {"search": "search", "annotation": "annot.", "similarity": "sent."}
Line = tuple[str, str, tuple[float | None, ...]]


def list_lines(kind: str, results: Sequence[Result]) -> list[Line]:
    """(encoder, variant, figures) of the published variants of this table, then of ours."""
    published = [(row.encoder or "published", row.variant, row.figures) for row in PUBLISHED.get(kind, ())]
    ours = [
        (
            f"fishermix, {result.encoder}",
            result.label,
            tuple(result.figures.get(task, {}).get(measure) for task, measure in COLUMNS),
        )
        for result in results
    ]
    return published + ours


def as_text(kind: str, results: Sequence[Result]) -> Table:
    table = Table("images", "variant", title=f"{kind}: search | annotation | sentences", title_justify="left")
    for task, measure in COLUMNS:
        table.add_column(f"{SHORT_TASKS[task]}\n{measure}", justify="right")
    for encoder, variant, values in list_lines(kind, results):
        table.add_row(
            encoder, variant, *map(_number, values), style="bold" if encoder.startswith("fishermix") else None
        )
    return table


def as_csv(kind: str, results: Sequence[Result]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["images", "variant", *(f"{task} {measure}" for task, measure in COLUMNS)])
    for encoder, variant, values in list_lines(kind, results):
        writer.writerow([encoder, variant, *("" if value is None else round(value, 2) for value in values)])
    return text.getvalue()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
