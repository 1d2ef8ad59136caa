"""Writes the tables of measured figures: python tools/document_results.py [--stale]

The published rows come from `fishermix_lab.tables`, ours from results/*.json. `--json` of `fishermix
reproduce`, `evaluate` and `captioner evaluate` adds rows to such a file, each with its command, version,
commit and machine, the hash of its inputs and the versions of the stages that computed it. A row is marked †
if a stage has changed since. `--stale` prints the commands of these rows. A test compares the documents with
the data.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fishermix_lab.record import is_stale
from fishermix_lab.tables import TABLE_COLUMNS, read_published
from fishermix_photos.model.saved import SHIPPED

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "packages" / "fishermix-lab" / "README.md",
    ROOT / "docs" / "results.md",
    ROOT / "docs" / "mixtures.md",
    ROOT / "docs" / "speed.md",
    SHIPPED / "MODEL_CARD.md",
]
PUBLISHED = read_published()
NETWORKS = {"OverFeat": "paper, OverFeat", "VGG": "paper, VGG-19"}
NO_TRANSFORMER = ", transformer=none"
TWO_OF_EACH = "encoders=efficientnet-lite2:depths,resnet50:depths"  # the last row with this change
BEST_OF_ALL = "resnet50-captions"  # the same
RECALLS = [(task, measure) for task in ("search", "annotation") for measure in ("r@1", "r@5", "r@10")]
Row = dict[str, Any]
Cell = float | str | None
Line = tuple[str, Sequence[Cell]]  # a label and its figures; no figures for a heading or a remark


def read_file(name: str) -> dict[str, Any]:
    """A file in results/."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text("utf8"))


def read_rows(name: str) -> list[Row]:
    """The rows of a file in results/."""
    return read_file(name)["rows"]


def find_row(name: str, label: str) -> Row:
    """The last row of a file in results/ with this label."""
    return [row for row in read_rows(name) if row["label"] == label][-1]


def find_changed(change: str) -> Row:
    """The last row of the recipe `best` with this change."""
    return [row for row in read_rows("flickr8k-best") if change in row["label"]][-1]


def read_package(options: str) -> Row | None:
    """The row of the model in the package that was measured with these options, if there is one."""
    command = f"fishermix evaluate --data {options}"
    found = [row for row in read_rows("package") if row["command"] == command]
    return {**found[0], "label": "the model in the package"} if found else None


# What the documents call the labels of the files.
LABELS = {
    "HGLMM, view=ten-crop": "HGLMM, ten crops",
    "HGLMM, encoders=resnet50": "HGLMM, ResNet-50 instead",
    "default": "consensus of beam and samples (the default)",
    "beam=8, samples=0": "beam 8, re-ranked by the joint space",
    "beam=1": "greedy, as in the paper",
}


def label(row: Row) -> str:
    """The label of a row, with a mark if it must be measured again."""
    text = row["label"].removesuffix(NO_TRANSFORMER)
    return LABELS.get(text, text) + " †" * is_stale(row.get("stages", {}))


def list_figures(row: Row, columns: Sequence[tuple[str, str]] = TABLE_COLUMNS) -> Line:
    return label(row), [row["figures"].get(task, {}).get(measure) for task, measure in columns]


def list_spread(row: Row) -> Line:
    """The figures with their standard deviations over the seeds, where there are several."""
    name, figures = list_figures(row)
    _, spread = list_figures({**row, "figures": row.get("deviation", {})})
    return name, [
        figure if deviation is None else f"{figure:.1f} ± {deviation:.1f}"
        for figure, deviation in zip(figures, spread)
    ]


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


def list_paper_recipe() -> list[Line]:
    return [
        ("fishermix, EfficientNet-lite2, `--recipe paper`", ()),
        *map(list_spread, read_rows("flickr8k-paper")),
    ]


def list_best_recipe() -> list[Line]:
    rows = [row for row in read_rows("flickr8k-best") if row["label"].endswith(NO_TRANSFORMER)]
    return [("fishermix, EfficientNet-lite2, `--recipe best`", ()), *map(list_figures, rows)]


def list_transformers() -> list[Line]:
    rows = {
        "GMM+HGLMM and all-MiniLM-L6-v2": find_row("flickr8k-best", "GMM+HGLMM"),
        "two networks, two transformers": find_changed(TWO_OF_EACH),
        "a network that has learned from captions, one crop": find_changed(
            "encoders=efficientnet-lite2-captions, "
        ),
        "best of all: two such networks, one crop, two transformers": find_changed(BEST_OF_ALL),
    }
    lines = [list_figures({**row, "label": text}) for text, row in rows.items()]
    return [("fishermix, `--recipe best` with sentence transformers", ()), *lines]


def list_package(options: str, heading: str) -> list[Line]:
    """The model in the package on COCO, or that it has not been measured."""
    row = read_package(options)
    return [(f"fishermix: {heading}", ()), list_figures(row)] if row else list_remark("not measured yet")


def list_remark(text: str) -> list[Line]:
    """A line that says why there are no rows of ours."""
    return [(f"fishermix: {text}", ())]


def format_halves(list_lines: Callable[[], list[Line]]) -> str:
    """A table of the paper's columns as two tables: narrow screens show few columns."""
    lines = list_lines()
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


def _format(value: Cell) -> str:
    if value is None or isinstance(value, str):
        return value or "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.1f}"


def format_paper_and_ours() -> str:
    """r@1 of the paper's best network and of `--recipe paper`."""
    lines: list[Line] = []
    for task in ("search", "annotation"):
        for variant in ("HGLMM", "GMM+HGLMM"):
            paper = [row for row in PUBLISHED["flickr8k"] if row.variant == variant][-1]
            _, ours = list_spread(find_row("flickr8k-paper", variant))
            column = TABLE_COLUMNS.index((task, "r@1"))
            lines.append((f"image {task}, {variant}", [paper.figures[column], ours[column]]))
    return format_lines(["r@1", "paper", "fishermix"], lines)


def format_comparisons() -> str:
    """The differences between variants of the paper's recipe, with their 95 % intervals."""
    compared = read_file("flickr8k-paper").get("comparisons", {})
    if not compared:
        return "Not measured yet."
    names = list(next(iter(compared.values())))
    lines = [
        (
            pair,
            [f"{one['difference']:+.1f} [{one['low']:+.1f}, {one['high']:+.1f}]" for one in found.values()],
        )
        for pair, found in compared.items()
    ]
    return format_lines(["", *names], lines)


def format_captions() -> str:
    names = {"bleu1": "BLEU-1", "bleu2": "BLEU-2", "bleu3": "BLEU-3", "bleu4": "BLEU-4"}
    names |= {"rouge_l": "ROUGE-L", "cider_d": "CIDEr-D"}
    rows = read_rows("flickr8k-captions")
    return format_lines(
        ["", *names.values()], [(label(row), list(map(row["scores"].get, names))) for row in rows]
    )


def format_originality() -> str:
    """Sentences by people, then those that were written."""
    names = {"sentences": "sentences", "new": "% not in the training set", "distinct": "different"}
    names |= {"words": "words used"}
    rows = [row for row in read_rows("flickr8k-captions") if "originality" in row]
    found = {text: one for text, one in rows[0]["originality"].items() if text != "written"}
    found |= {label(row): row["originality"]["written"] for row in rows if "written" in row["originality"]}
    return format_lines(
        ["", *names.values()], [(text, list(map(one.get, names))) for text, one in found.items()]
    )


def format_mixtures() -> str:
    lines: list[Line] = [
        (label(row), [f"{row['log_likelihood']:.2f}", row["iterations"], row["laplacian"]])
        for row in read_rows("word2vec-mixtures")
    ]
    return format_lines(["mixture", "log likelihood of a vector", "iterations", "% Laplacian cells"], lines)


def format_best_command() -> str:
    """The command of the best row of all."""
    command = find_changed(BEST_OF_ALL)["command"].replace(" --set", " \\\n  --set", 1)
    return f"```console\n$ {command}\n```"


def list_package_rows() -> list[Row]:
    """The rows of the model in the package on the sets that it was measured on."""
    found = ((text, read_package(options)) for options, text in PACKAGE_SETS.items())
    return [{**row, "label": text} for text, row in found if row]


def format_card() -> str:
    """The figures of the model in the package, a column per data set."""
    sets = [list_figures(row) for row in list_package_rows()]
    columns = zip(*(figures for _, figures in sets))
    lines = [(f"{task} {measure}", cells) for (task, measure), cells in zip(TABLE_COLUMNS, columns)]
    return format_lines(["", *(text for text, _ in sets)], lines)


def format_package() -> str:
    """The recalls of the model in the package, a line per data set."""
    lines = [list_figures(row, RECALLS) for row in list_package_rows()]
    return format_lines(["", "search r@1", "r@5", "r@10", "annotation r@1", "r@5", "r@10"], lines)


def format_readme() -> str:
    """Our rows next to the paper's best; bold where they are better."""
    rows = {
        "`--recipe paper`, HGLMM": find_row("flickr8k-paper", "HGLMM"),
        "`--recipe paper`, GMM+HGLMM": find_row("flickr8k-paper", "GMM+HGLMM"),
        "1. `--recipe best`, GMM+HGLMM": find_row("flickr8k-best", f"GMM+HGLMM{NO_TRANSFORMER}"),
        "2. ... and a sentence transformer": find_row("flickr8k-best", "GMM+HGLMM"),
        "3. two networks, two sentence transformers": find_changed(TWO_OF_EACH),
        "4. best of all: two networks that have learned from captions": find_changed(BEST_OF_ALL),
    }
    paper = [PUBLISHED["flickr8k"][-1].figures[TABLE_COLUMNS.index(column)] for column in RECALLS]
    lines: list[Line] = []
    for text, row in rows.items():
        name, figures = list_figures({**row, "label": text}, RECALLS)
        cells = [
            f"**{value:.1f}**" if value > limit else f"{value:.1f}" for value, limit in zip(figures, paper)
        ]
        lines.append((name, cells))
    lines.append(("the paper's best (VGG-19, ten crops, GMM+HGLMM)", paper))
    naa = {**find_row("flickr8k-later", "NAA"), "label": "NAA (ICASSP 2019), with a ResNet"}
    lines.append(list_figures(naa, RECALLS))
    return format_lines(["", "search r@1", "r@5", "r@10", "annotation r@1", "r@5", "r@10"], lines)


IMAGE = "scikit-image, float32"
# What the page on speed shows: a label, the beginning and the end of the work, threads, and the peer.
SPEED = [
    ("GMM, 2,000 x 10, K=3, float64", "GMM, N=2,000", "near", 1, "scikit-learn"),
    ("GMM, 10,000 x 64, K=256, float64, near", "GMM, N=10,000", "float64, near", 1, "scikit-learn"),
    ("GMM, 10,000 x 64, K=256, float32, near", "GMM, N=10,000", "float32, near", 1, "scikit-learn"),
    ("hybrid, 10,000 x 64, K=256, float32, near", "HGLMM, N=10,000", "float32, near", 1, "scikit-learn"),
    ("GMM, 100,000 x 300, K=30, float32", "GMM, N=100,000", "float32, near", 1, "scikit-learn"),
    ("hybrid, 100,000 x 300, K=30, float32", "HGLMM, N=100,000", "float32, near", 1, "scikit-learn"),
    ("hybrid, 1,000,000 x 16, K=8, float64", "HGLMM, N=1,000,000", "float64, near", 1, "scikit-learn"),
    (
        "Fisher vector of 10,000 x 64, K=256",
        "one set, 10,000",
        "K=256 Gaussian, mixture of 10 iterations",
        1,
        IMAGE,
    ),
    (
        "the same, K=64, components overlap",
        "one set, 10,000",
        "K=64 Gaussian, components that overlap",
        1,
        IMAGE,
    ),
    ("Fisher vector of 20 x 64, K=64", "one set, 20 x 64", "iterations", 1, IMAGE),
    ("Fisher vectors of 200 images, 1,000 x 64, K=64", "200 images", "", 1, IMAGE),
    ("hybrid Fisher vectors of 30,000 sets of 10 words", "30,000 sets", "", 1, "scikit-image, Gaussian"),
    ("ridge CCA, n=5,000, p=q=500, float32", "ridge CCA by primal, n=5,000", "float32", 1, "cca-zoo"),
    (
        "ridge CCA, n=3,000, p=1,024, q=3,000, float32",
        "ridge CCA by primal, n=3,000",
        "float32",
        1,
        "cca-zoo",
    ),
    ("ridge CCA, n=6,000, p=4,096, q=18,000, float32", "ridge CCA by dual, n=6,000", "float32", 1, "cca-zoo"),
    ("one query among 1,000,000 photos, two threads", "query, 1,000,000", "p50", 2, "faiss"),
]


def format_speed() -> str:
    """CPU seconds of ours and of other libraries."""
    known = json.loads((ROOT / "benchmarks" / "speed.json").read_text("utf8"))
    lines: list[Line] = []
    for text, begin, end, threads, peer in SPEED:
        [row] = [
            row
            for row in known
            if row["work"].startswith(begin)
            and row["work"].endswith(end)
            and row["threads"] == threads
            and row.get("peer", "").startswith(peer)
        ]
        ours, theirs = row["seconds"][1], row["peer_seconds"][1]
        cells = [f"{ours:.3g}", f"{theirs:.3g}", f"{ours / theirs:.2f}"]
        lines.append((text, [row["peer"].partition(",")[0].partition(" ")[0], *cells]))
    return format_lines(["one thread, CPU seconds", "compared with", "ours", "theirs", "ratio"], lines)


FLICKR8K = "flickr8k:DIR --split test"
FLICKR8K_COPIES = f"{FLICKR8K} --copies 256"
COCO_5K = "folder:DIR --split test"
COCO_1K = f"{COCO_5K} --sample 1000"
PACKAGE_SETS = {
    FLICKR8K: "Flickr8K test, 1,000 photos as uploaded",
    FLICKR8K_COPIES: "copies of them: 256 pixels, quality 75",
    COCO_1K: "1,000 of COCO's test photos (256 pixels, quality 75)",
}
MISSING = list_remark("not measured, the photos cannot be had")
TABLES: dict[str, Callable[[], str]] = {
    name: partial(format_halves, list_lines)
    for name, list_lines in {
        "flickr8k": lambda: list_published("flickr8k") + list_paper_recipe(),
        "flickr8k-best": lambda: (
            list_best_recipe()
            + [(NETWORKS["VGG"], ()), list_published("flickr8k")[-1]]
            + [("Later methods, published", ()), *map(list_figures, read_rows("flickr8k-later"))]
        ),
        "flickr8k-transformer": lambda: list_transformers() + [list_figures(read_package(FLICKR8K))],
        "flickr30k": lambda: list_published("flickr30k") + MISSING,
        "pascal1k": lambda: list_published("pascal1k") + MISSING,
        "coco-1k": lambda: list_published("coco-1k") + list_package(COCO_1K, "1,000 of 4,407 photos"),
        "coco-5k": lambda: list_published("coco-5k") + list_package(COCO_5K, "4,407 photos"),
    }.items()
} | {
    "flickr8k-paper-and-ours": format_paper_and_ours,
    "flickr8k-comparisons": format_comparisons,
    "flickr8k-best-command": format_best_command,
    "captions": format_captions,
    "originality": format_originality,
    "word2vec-mixtures": format_mixtures,
    "card": format_card,
    "package": format_package,
    "readme": format_readme,
    "speed": format_speed,
}


def write_tables(text: str) -> str:
    """A document with its tables written again."""

    def replace(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n{TABLES[found[1]]()}\n<!-- end -->"

    return re.sub(r"(?s)<!-- table: (\S+) -->\n.*?<!-- end -->", replace, text)


def list_stale() -> Iterator[str]:
    """The commands of the rows that must be measured again."""
    rows = [row for file in sorted((ROOT / "results").glob("*.json")) for row in read_rows(file.stem)]
    yield from dict.fromkeys(row["command"] for row in rows if is_stale(row.get("stages", {})))


if __name__ == "__main__":
    if "--stale" in sys.argv:
        print(*list_stale(), sep="\n")
    else:
        for document in DOCUMENTS:
            document.write_text(write_tables(document.read_text("utf8")), "utf8")
