"""The figures of the packaged model: the documents agree with what `fishermix evaluate` measured."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from fishermix_photos.lab.datasets import open_dataset
from fishermix_photos.lab.tables import TABLE_COLUMNS, read_published
from fishermix_photos.lab.training import evaluate_model
from fishermix_photos.model import SHIPPED, ImageTextModel

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import document_results  # noqa: E402

CARD = SHIPPED / "MODEL_CARD.md"
FIGURES = {name: json.loads((SHIPPED / f"figures-{name}.json").read_text()) for name in ("flickr8k", "coco")}


def test_the_card_has_the_measured_figures():
    card = CARD.read_text("utf8")
    for task, measure in TABLE_COLUMNS:
        cells = [f"{FIGURES[name][task][measure]:.1f}" for name in ("flickr8k", "coco")]
        assert f"| {task} {measure} | {' | '.join(cells)} |" in card


def test_the_page_of_results_has_the_tables_of_its_data():
    page = document_results.PAGE.read_text("utf8")
    assert set(re.findall(r"<!-- table: (\S+) -->", page)) == set(document_results.TABLES)
    assert document_results.write_tables(page) == page, "run python tools/document_results.py"


def test_the_page_of_results_has_every_published_row():
    page = document_results.PAGE.read_text("utf8")
    assert sum(map(len, read_published().values())) == 58
    for table, rows in read_published().items():
        written = page.partition(f"<!-- table: {table} -->")[2].partition("<!-- end -->")[0]
        for row in rows:
            search, annotation = (
                " | ".join("–" if value is None else f"{value:.1f}" for value in part)
                for part in (row.figures[:5], row.figures[5:])
            )
            assert f"| {row.variant} | {search} |" in written, (table, row)
            assert f"| {row.variant} | {annotation} |" in written, (table, row)


def test_measured_rows_have_a_command_and_eleven_figures():
    for file in (ROOT / "results").glob("*.json"):
        found = json.loads(file.read_text("utf8"))
        for row in found["rows"]:
            assert len(row["figures"]) == 11, (file, row)
            assert file.stem == "flickr8k-later" or (row.get("command") or found["command"]), (file, row)


def test_the_readme_has_the_measured_figures():
    search, annotation = (FIGURES["flickr8k"][task]["r@1"] for task in ("search", "annotation"))
    assert f"has {search:.1f} and {annotation:.1f} at r@1" in (ROOT / "README.md").read_text("utf8")


def test_the_figures_are_of_the_test_photos():
    assert [(FIGURES[name]["split"], FIGURES[name]["images"]) for name in FIGURES] == [("test", 1000)] * 2


@pytest.mark.real
@pytest.mark.skipif("FISHERMIX_DATA" not in os.environ, reason="FISHERMIX_DATA does not name the real data")
def test_the_packaged_model_has_the_figures_of_its_card(tmp_path):
    data = open_dataset(f"flickr8k:{os.environ['FISHERMIX_DATA']}/flickr8k").part("test")
    found = evaluate_model(ImageTextModel.load(), data, tmp_path)
    for task, measures in found.items():
        assert measures == pytest.approx(FIGURES["flickr8k"][task], abs=0.15), task
