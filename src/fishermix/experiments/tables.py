"""The table of a reproduction next to the published ones: as text, CSV and one self-contained page."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from itertools import pairwise

from rich.table import Table

from fishermix.experiments.published import COLUMNS, PUBLISHED
from fishermix.experiments.reproduce import Result

SHORT = {"search": "search", "annotation": "annot.", "similarity": "sent."}
COLORS = ("#4269d0", "#efb118", "#ff725c", "#3ca951", "#a463f2", "#6cc5b0")
Line = tuple[str, str, tuple[float | None, ...]]


def lines(kind: str, results: Sequence[Result]) -> list[Line]:
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
        table.add_column(f"{SHORT[task]}\n{measure}", justify="right")
    for encoder, variant, values in lines(kind, results):
        table.add_row(
            encoder, variant, *map(_number, values), style="bold" if encoder.startswith("fishermix") else None
        )
    return table


def as_csv(kind: str, results: Sequence[Result]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["images", "row", *(f"{task} {measure}" for task, measure in COLUMNS)])
    for encoder, variant, values in lines(kind, results):
        writer.writerow([encoder, variant, *("" if value is None else round(value, 2) for value in values)])
    return text.getvalue()


def as_markdown(kind: str, results: Sequence[Result]) -> str:
    head = (
        "| images | variant | " + " | ".join(f"{SHORT[task]} {measure}" for task, measure in COLUMNS) + " |"
    )
    rows = [head, "|---" * (len(COLUMNS) + 2) + "|"]
    for encoder, variant, values in lines(kind, results):
        rows.append(f"| {encoder} | {variant} | " + " | ".join(map(_number, values)) + " |")
    return "\n".join(rows) + "\n"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def as_page(kind: str, results: Sequence[Result]) -> str:
    """One HTML page without external resources: table, recall curves, rank histograms, Laplacian shares."""
    head = "".join(f"<th>{SHORT[task]}<br>{measure}</th>" for task, measure in COLUMNS)
    body = "".join(
        f"<tr{' class=ours' if encoder.startswith('fishermix') else ''}><td>{html.escape(encoder)}</td>"
        f"<td>{html.escape(variant)}</td>"
        + "".join(f"<td>{_number(value)}</td>" for value in values)
        + "</tr>"
        for encoder, variant, values in lines(kind, results)
    )
    plots = "".join(
        f"<figure>{_recall_plot(results, task)}<figcaption>{title}</figcaption></figure>"
        f"<figure>{_histogram(results, task)}<figcaption>{title}: rank of the first right answer"
        "</figcaption></figure>"
        for task, title in (("search", "Image search"), ("annotation", "Image annotation"))
    )
    legend = "".join(
        f"<li><span style='background:{_color(number)}'></span>{html.escape(result.label)}, "
        f"{html.escape(result.encoder)}</li>"
        for number, result in enumerate(results)
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>fishermix: {html.escape(kind)}</title>"
        f"<meta name=viewport content='width=device-width'><style>{STYLE}</style>"
        f"<h1>{html.escape(kind)}</h1><ul class=legend>{legend}</ul><div class=plots>{plots}"
        f"<figure>{_laplacian_bars(results)}<figcaption>Share of Laplacian cells in the hybrid mixture"
        "</figcaption></figure></div>"
        f"<div class=wide><table><thead><tr><th>images</th><th>variant</th>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div></html>"
    )


STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem}
.plots{display:flex;flex-wrap:wrap;gap:1.5rem}figure{margin:0}figcaption{color:gray;font-size:.9em}
svg{width:22rem;max-width:100%;height:auto}svg text{font-size:11px;fill:currentColor}
.wide{overflow-x:auto;margin-top:2rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:.25em .5em;text-align:right;border-bottom:1px solid #8884;white-space:nowrap}
:is(td,th):is(:first-child,:nth-child(2)){text-align:left}.ours{font-weight:600}
.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem}
.legend span{display:inline-block;width:.8em;height:.8em;margin-right:.4em;border-radius:2px}
"""
WIDTH, HEIGHT, LEFT, BOTTOM = 360, 220, 36, 28


def _color(number: int) -> str:
    return COLORS[number % len(COLORS)]


def _recall_plot(results: Sequence[Result], task: str) -> str:
    deepest = 50
    marks = []
    for number, result in enumerate(results):
        curve = result.recall_curve[task][:deepest]
        points = " ".join(f"{_x(rank / deepest)},{_y(value / 100)}" for rank, value in enumerate(curve, 1))
        marks.append(f"<polyline points='{points}' fill=none stroke='{_color(number)}' stroke-width=2 />")
    ticks = [(rank / deepest, str(rank)) for rank in (1, 10, 20, 30, 40, 50)]
    return _axes(
        "".join(marks), ticks, [(share, f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)], "rank"
    )


def _histogram(results: Sequence[Result], task: str) -> str:
    edges = (1, 2, 3, 6, 11, 21, 51, 101, 1001)
    names = ("1", "2", "3–5", "6–10", "11–20", "21–50", "51–100", ">100")
    shares = []
    for result in results:
        curve = [0.0, *result.recall_curve[task]]
        upto = [curve[min(edge - 1, len(curve) - 1)] for edge in edges[:-1]] + [100.0]
        shares.append([(high - low) / 100 for low, high in pairwise(upto)])
    top = max(max(row) for row in shares) * 1.05
    width = (WIDTH - LEFT - 8) / len(names)
    bar = width * 0.8 / len(shares)
    marks = "".join(
        f"<rect x='{LEFT + place * width + number * bar:.1f}' y='{_y(share / top)}' width='{bar:.1f}' "
        f"height='{max(0.0, HEIGHT - BOTTOM - float(_y(share / top))):.1f}' fill='{_color(number)}' />"
        for number, row in enumerate(shares)
        for place, share in enumerate(row)
    )
    ticks = [((place + 0.4) / len(names), name) for place, name in enumerate(names)]
    heights = [(share, f"{share * top:.0%}") for share in (0, 0.5, 0.95)]
    return _axes(marks, ticks, heights, "rank")


def _laplacian_bars(results: Sequence[Result]) -> str:
    having = [(number, result) for number, result in enumerate(results) if result.laplacian is not None]
    height = 24
    bars = "".join(
        f"<rect x=90 y='{place * height + 4}' width='{(result.laplacian or 0) * (WIDTH - 150):.1f}' "
        f"height=16 fill='{_color(number)}' />"
        f"<text x=86 y='{place * height + 16}' text-anchor=end>{result.label}</text>"
        f"<text x='{94 + (result.laplacian or 0) * (WIDTH - 150):.1f}' y='{place * height + 16}'>"
        f"{result.laplacian or 0:.1%}</text>"
        for place, (number, result) in enumerate(having)
    )
    return f"<svg viewBox='0 0 {WIDTH} {max(1, len(having)) * height}' role=img>{bars}</svg>"


def _x(share: float) -> str:
    return f"{LEFT + share * (WIDTH - LEFT - 8):.1f}"


def _y(share: float) -> str:
    return f"{8 + (1 - share) * (HEIGHT - BOTTOM - 8):.1f}"


def _axes(marks: str, across: list[tuple[float, str]], up: list[tuple[float, str]], title: str) -> str:
    grid = "".join(
        f"<line x1={LEFT} x2={WIDTH - 8} y1={_y(share)} y2={_y(share)} stroke='#8884' />"
        f"<text x={LEFT - 4} y={_y(share)} dy=4 text-anchor=end>{name}</text>"
        for share, name in up
    )
    names = "".join(
        f"<text x={_x(share)} y={HEIGHT - 14} text-anchor=middle>{html.escape(name)}</text>"
        for share, name in across
    )
    return (
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role=img>{grid}{marks}{names}"
        f"<text x={WIDTH / 2} y={HEIGHT - 2} text-anchor=middle>{title}</text></svg>"
    )
