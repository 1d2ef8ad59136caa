"""Writes the tables of measured figures: python tools/document_results.py [--stale]

The published rows come from `fishermix_photos.lab.tables`, ours from results/*.json and, for the model in the
package, from figures-*.json next to it. `--json` of `fishermix reproduce`, `evaluate` and of
tools/ablations.py writes such files: the command, version, commit and machine, and rows with their figures,
the hash of their inputs and the versions of the stages that computed them. A row is marked † if a stage has
changed since. `--stale` prints the commands of these rows. A test compares the documents with the data.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fishermix_photos.lab.record import is_stale
from fishermix_photos.lab.tables import TABLE_COLUMNS, read_published
from fishermix_photos.model import SHIPPED

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "docs" / "results.md",
    ROOT / "docs" / "mixtures.md",
    SHIPPED / "MODEL_CARD.md",
]
PUBLISHED = read_published()
NETWORKS = {"OverFeat": "paper, OverFeat", "VGG": "paper, VGG-19"}
HEADINGS = {
    "flickr8k-paper": "fishermix, EfficientNet-lite2, `--recipe paper`",
    "flickr8k-best": "fishermix, EfficientNet-lite2, `--recipe best`",
    "flickr8k-best-resnet50": "fishermix, EfficientNet-lite2 and ResNet-50, `--recipe best`",
    "flickr8k-later": "Later methods, published",
}
# Files of one row each.
TRANSFORMERS = {
    "flickr8k-transformer-1": "1. `--recipe best`, GMM+HGLMM and the transformer",
    "flickr8k-transformer-2": "2. the same with mixtures of 10 components instead of 30",
    "flickr8k-transformer-3": "3. one crop, plain vectors: HGLMM and the transformer",
    "flickr8k-transformer-4": "4. one crop, plain vectors: HGLMM alone",
    "flickr8k-transformer-5": "5. row 2 with a second transformer, gte-small",
    "flickr8k-transformer-6": "6. row 2 with ResNet-50",
    "flickr8k-transformer-7": "7. row 2 with gte-small and ResNet-50",
}
CAPTIONS = {
    "flickr8k-captions-consensus": "consensus of beam and samples (the default)",
    "flickr8k-captions-beam-8": "beam 8, re-ranked by the joint space",
    "flickr8k-captions-greedy": "greedy, as in the paper",
}
VIEWS = "GMM, two views, "  # how the changes of tools/ablations.py begin that are about sentence views
RECALLS = [(task, measure) for task in ("search", "annotation") for measure in ("r@1", "r@5", "r@10")]
Line = tuple[str, Sequence[float | None]]  # a label and its figures; no figures for a heading or a remark


def read_file(name: str) -> dict[str, Any]:
    """A file in results/."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text("utf8"))


def read_rows(name: str) -> list[dict[str, Any]]:
    """The rows of a file in results/, each with its command; a file may be one row itself."""
    found = read_file(name)
    return [{"command": found.get("command"), **row} for row in found.get("rows", [found])]


def read_package(name: str) -> dict[str, Any]:
    """The row of the model in the package on a data set."""
    found = json.loads((SHIPPED / f"figures-{name}.json").read_text("utf8"))
    return {"label": "the model in the package", "figures": found, **found}


def label(row: dict[str, Any]) -> str:
    """The label of a row, with a mark if it must be measured again."""
    return row["label"] + " †" * is_stale(row.get("stages", {}))


def list_figures(row: dict[str, Any], columns: Sequence[tuple[str, str]] = TABLE_COLUMNS) -> Line:
    return label(row), [row["figures"].get(task, {}).get(measure) for task, measure in columns]


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
    return [(HEADINGS[name], ()), *map(list_figures, read_rows(name))]


def list_transformers() -> list[Line]:
    lines = [list_figures({**read_rows(name)[0], "label": text}) for name, text in TRANSFORMERS.items()]
    return [("fishermix with a sentence transformer", ()), *lines]


def list_remark(text: str) -> list[Line]:
    """A line that says why there are no rows of ours."""
    return [(f"fishermix: {text}", ())]


def format_halves(lines: list[Line]) -> str:
    """A table of the paper's columns as two tables: narrow screens show few columns."""
    names = ["similarity mean" if task == "similarity" else measure for task, measure in TABLE_COLUMNS]
    halves = {"Image search": slice(0, 5), "Image annotation, sentence similarity": slice(5, 11)}
    return "\n\n".join(
        format_lines([title, *names[part]], [(name, figures[part]) for name, figures in lines])
        for title, part in halves.items()
    )


def format_lines(header: Sequence[str], lines: Sequence[Line]) -> str:
    """A table in Markdown; lines without figures are headings."""
    rows = [f"| {' | '.join(header)} |", f"|---|{'--:|' * (len(header) - 1)}"]
    for name, figures in lines:
        cells = [_format(value) for value in figures] if figures else [""] * (len(header) - 1)
        rows.append(f"| {name if figures else f'**{name}**'} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _format(value: float | None) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.1f}"


def list_changes(prefix: str = "") -> list[Line]:
    """Recalls on the validation photos and their sum, of the changes with or without this prefix."""
    lines: list[Line] = []
    for row in read_rows("flickr8k-ablations"):
        if row["label"].startswith(VIEWS) == bool(prefix):
            name, figures = list_figures(row, RECALLS)
            total = row.get(
                "sum", sum(value or 0 for value in figures)
            )  # of figures before they were rounded
            lines.append((name.removeprefix(prefix), [*figures, total]))
    return lines


def format_changes(title: str, prefix: str = "") -> str:
    names = [f"{task} {measure}" for task, measure in RECALLS]
    return format_lines([title, *names, "sum"], list_changes(prefix))


def format_captions() -> str:
    names = {"bleu1": "BLEU-1", "bleu2": "BLEU-2", "bleu3": "BLEU-3", "bleu4": "BLEU-4"}
    names |= {"rouge_l": "ROUGE-L", "cider_d": "CIDEr-D"}
    rows = [
        {"label": text, "scores": row, **row}
        for text, row in zip(CAPTIONS.values(), map(read_file, CAPTIONS))
    ]
    rows += read_rows("flickr8k-captions-others")
    return format_lines(
        ["", *names.values()], [(label(row), list(map(row["scores"].get, names))) for row in rows]
    )


def format_originality() -> str:
    names = {"sentences": "sentences", "new": "% not in the training set", "distinct": "different"}
    names |= {"words": "words used"}
    files = ("flickr8k-captions-consensus", "flickr8k-captions-others")
    found = {text: row for name in files for text, row in read_file(name)["originality"].items()}
    return format_lines(
        ["", *names.values()], [(text, list(map(row.get, names))) for text, row in found.items()]
    )


def format_mixtures() -> str:
    lines = [
        (label(row), [row["iterations"], row["laplacian"]], f"{row['log_likelihood']:.2f}")
        for row in read_rows("word2vec-mixtures")
    ]
    rows = [f"| {name} | {score} | {' | '.join(map(_format, cells))} |" for name, cells, score in lines]
    header = "| mixture | log likelihood of a vector | iterations | % Laplacian cells |\n|---|--:|--:|--:|"
    return "\n".join([header, *rows])


def format_card() -> str:
    """The figures of the model in the package, a column per data set."""
    names = {"flickr8k": "Flickr8K test, 1,000 photos", "coco": "1,000 of COCO's test photos"}
    sets = [list_figures({**read_package(name), "label": text}) for name, text in names.items()]
    columns = zip(*(figures for _, figures in sets))
    lines = [(f"{task} {measure}", cells) for (task, measure), cells in zip(TABLE_COLUMNS, columns)]
    return format_lines(["", *(text for text, _ in sets)], lines)


def format_readme() -> str:
    """Our best rows next to the paper's best; bold where they are better."""
    best, both = read_rows("flickr8k-best")[-1], read_rows("flickr8k-best-resnet50")[-1]
    first, *_, last = (read_rows(name)[0] for name in TRANSFORMERS)
    rows = {
        "1. EfficientNet-lite2, GMM+HGLMM and a sentence transformer": first,
        "2. EfficientNet-lite2, GMM+HGLMM": best,
        "3. EfficientNet-lite2 and ResNet-50, GMM+HGLMM": both,
        "4. EfficientNet-lite2 and ResNet-50, GMM+HGLMM and two sentence transformers": last,
    }
    paper = [PUBLISHED["flickr8k"][-1].figures[TABLE_COLUMNS.index(column)] for column in RECALLS]
    lines = [list_figures({**row, "label": text}, RECALLS) for text, row in rows.items()]
    lines += [("the paper's best (VGG-19, ten crops, GMM+HGLMM)", paper)]
    lines += [
        list_figures({**read_rows("flickr8k-later")[0], "label": "NAA (ICASSP 2019), with a ResNet"}, RECALLS)
    ]
    table = format_lines(
        ["", "search r@1", "r@5", "r@10", "annotation r@1", "r@5", "r@10"], lines
    ).splitlines()
    for number, (_, figures) in enumerate(lines[:4], 2):
        cells = [
            f"**{value:.1f}**" if value > limit else f"{value:.1f}" for value, limit in zip(figures, paper)
        ]
        table[number] = f"| {lines[number - 2][0]} | {' | '.join(cells)} |"
    return "\n".join(table)


MISSING = list_remark("not measured, the photos cannot be had")
TABLES: dict[str, Callable[[], str]] = {
    name: partial(format_halves, lines)
    for name, lines in {
        "flickr8k": list_published("flickr8k") + list_measured("flickr8k-paper"),
        "flickr8k-best": list_measured("flickr8k-best")
        + list_measured("flickr8k-best-resnet50")
        + [(NETWORKS["VGG"], ()), list_published("flickr8k")[-1]]
        + list_measured("flickr8k-later"),
        "flickr8k-transformer": list_transformers() + [list_figures(read_package("flickr8k"))],
        "flickr30k": list_published("flickr30k") + MISSING,
        "pascal1k": list_published("pascal1k") + MISSING,
        "coco-1k": list_published("coco-1k")
        + list_remark("1,000 of 4,407 photos")
        + [list_figures(read_package("coco"))],
        "coco-5k": list_published("coco-5k") + list_remark("not measured yet (4,407 photos)"),
    }.items()
} | {
    "flickr8k-views": partial(format_changes, "", VIEWS),
    "flickr8k-ablations": partial(format_changes, "change"),
    "captions": format_captions,
    "originality": format_originality,
    "word2vec-mixtures": format_mixtures,
    "card": format_card,
    "readme": format_readme,
}


def write_tables(text: str) -> str:
    """A document with its tables written again."""

    def replace(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n{TABLES[found[1]]()}\n<!-- end -->"

    return re.sub(r"(?s)<!-- table: (\S+) -->\n.*?<!-- end -->", replace, text)


def list_stale() -> Iterator[str]:
    """The commands of the rows that must be measured again."""
    rows = [row for file in sorted((ROOT / "results").glob("*.json")) for row in read_rows(file.stem)]
    rows += [read_package(name) for name in ("flickr8k", "coco")]
    yield from dict.fromkeys(row["command"] for row in rows if is_stale(row.get("stages", {})))


if __name__ == "__main__":
    if "--stale" in sys.argv:
        print(*list_stale(), sep="\n")
    else:
        for document in DOCUMENTS:
            document.write_text(write_tables(document.read_text("utf8")), "utf8")
