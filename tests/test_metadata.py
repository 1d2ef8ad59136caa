"""The package's metadata, its citation, and the versions it declares."""

import re
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path

import pytest

import fishermix

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text("utf8")
    assert re.search(r"(?m)^version: (.+)$", citation)[1] == fishermix.__version__ == PROJECT["version"]


def test_the_metadata_is_complete():
    assert PROJECT["authors"]
    assert PROJECT["urls"]
    assert PROJECT["license"] == "BSD-3-Clause"
    stated = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)}
    assert stated == {"3.11", "3.12", "3.13"}
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_citation_is_complete():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf8"))
    for name in (
        "message",
        "title",
        "authors",
        "version",
        "date-released",
        "license",
        "abstract",
        "keywords",
    ):
        assert citation[name], name
    assert isinstance(citation["date-released"], date)
    paper = citation["preferred-citation"]
    assert paper["doi"] in PROJECT["urls"]["Paper"]
    assert [author["family-names"] for author in paper["authors"]] == ["Klein", "Lev", "Sadeh", "Wolf"]


def test_every_minimum_is_a_version_that_make_test_minimum_can_pin():
    listing = [sys.executable, ROOT / "tools" / "list_minima.py"]
    pins = subprocess.run(
        [*listing, "serve", "dask"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "scikit-learn==1.6" in pins  # `validate_data` is new in 1.6
    assert "typer==0.16" in pins  # earlier versions fail with click 8.2
    assert len(pins) >= len(PROJECT["dependencies"]) + 4
    assert all(re.fullmatch(r"[\w.\[\]-]+==[\d.]+", pin) for pin in pins)
    wrong = subprocess.run([*listing, "nothing"], capture_output=True, text=True)
    assert wrong.returncode
    assert "neither an extra nor a dependency group 'nothing'" in wrong.stderr
