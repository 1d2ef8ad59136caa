"""The figures of the documents are those that were measured, and say when they must be measured again."""

import os
import re
from pathlib import Path

import document_results
import pytest
from fishermix_lab import stages
from fishermix_lab.datasets.readers import open_dataset
from fishermix_lab.tables import read_published
from fishermix_lab.training import evaluate_model
from fishermix_photos.model.model import ImageTextModel

ROOT = Path(__file__).parent.parent

FIGURES = [
    document_results.read_package(options)
    for options in (document_results.FLICKR8K, document_results.COCO_1K)
]


def test_the_documents_have_the_tables_of_their_data():
    texts = {path: path.read_text("utf8") for path in document_results.DOCUMENTS}
    written = [name for text in texts.values() for name in re.findall(r"<!-- table: (\S+) -->", text)]
    assert sorted(written) == sorted(document_results.TABLES)
    for path, text in texts.items():
        assert document_results.write_tables(text) == text, f"{path}: run python tools/document_results.py"


def test_rows_of_a_changed_stage_are_marked(monkeypatch):
    before = document_results.format_card()
    assert "†" not in before
    monkeypatch.setitem(stages.VERSIONS, "ranks", stages.VERSIONS["ranks"] + 1)
    assert document_results.format_card().count("† |") == len(document_results.list_package_rows()) > 0
    assert "fishermix evaluate --data flickr8k:DIR --split test" in document_results.list_stale()


def test_the_page_of_results_has_every_published_row():
    page = (ROOT / "docs" / "results.md").read_text("utf8")
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


@pytest.mark.parametrize("file", sorted((ROOT / "results").glob("*.json")), ids=lambda path: path.stem)
def test_measured_rows_say_how_they_were_measured(file):
    """Rows without stages are published ones, or those of a version whose code is gone."""
    rows = document_results.read_rows(file.stem)
    measured = [row for row in rows if "stages" in row]
    assert bool(measured) == (file.stem != "flickr8k-later")
    for row in measured:
        assert row["command"].startswith(("fishermix ", "python "))
        assert set(row["stages"]) <= set(stages.VERSIONS)
        assert {"version", "commit", "machine"} <= set(row)
        assert "dirty" not in row["commit"]
    assert len({(row.get("command"), row["label"]) for row in rows}) == len(rows)
    assert not re.search(r'"[^"]*(?:/home|/work|/tmp|/root|/Users)/', file.read_text("utf8"))


def test_the_figures_are_of_the_test_photos():
    assert [row["images"] for row in FIGURES] == [1000] * 2


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.skipif("FISHERMIX_DATA" not in os.environ, reason="FISHERMIX_DATA does not name the real data")
def test_the_packaged_model_has_the_figures_of_its_card(tmp_path):
    """The photos there are copies of 256 pixels and quality 75, almost those of `--copies 256`."""
    data = open_dataset(f"flickr8k:{os.environ['FISHERMIX_DATA']}/flickr8k").part("test")
    found = evaluate_model(ImageTextModel.load(), data, tmp_path)
    card = document_results.read_package(document_results.FLICKR8K_COPIES)["figures"]
    for task, measures in found.items():
        assert measures == pytest.approx(card[task], abs=1.0), task
