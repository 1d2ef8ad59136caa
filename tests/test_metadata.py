"""The metadata of both packages, their citation, and the versions they declare."""

import re
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path

import fishermix
import fishermix_photos
import pytest

ROOT = Path(__file__).parents[1]
LIBRARY, PHOTOS = (
    tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text("utf8"))["project"]
    for name in ("fishermix", "fishermix-photos")
)


def test_the_version_is_the_same_everywhere():
    version = fishermix.__version__
    citation = (ROOT / "CITATION.cff").read_text("utf8")
    assert re.search(r"(?m)^version: (.+)$", citation)[1] == version
    assert fishermix_photos.__version__ == version
    assert LIBRARY["dynamic"] == PHOTOS["dynamic"] == ["version"]  # read from fishermix/__init__.py
    assert f"fishermix=={version}" in PHOTOS["dependencies"]


def test_the_change_log_begins_with_this_version():
    newest = re.search(r"(?m)^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf8"))[1]
    assert newest == fishermix.__version__


@pytest.mark.parametrize("project", [LIBRARY, PHOTOS], ids=lambda project: project["name"])
def test_the_metadata_is_complete(project):
    assert project["authors"]
    assert project["urls"]
    assert project["license"] == "BSD-3-Clause"
    stated = {c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)}
    assert stated == {"3.11", "3.12", "3.13"}
    assert project["requires-python"] == ">=3.11"


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
    assert paper["doi"] in LIBRARY["urls"]["Paper"]
    assert [author["family-names"] for author in paper["authors"]] == ["Klein", "Lev", "Sadeh", "Wolf"]


CVPR = "Associating Neural Word Embeddings with Deep Image Representations using Fisher Vectors"
PREPRINT = "Fisher Vectors Derived from Hybrid Gaussian-Laplacian Mixture Models for Image Annotation"


@pytest.mark.parametrize("document", ["README.md", "docs/cite.md", "docs/start/paper.md", "CITATION.cff"])
def test_every_citation_gives_both_versions_of_the_paper_their_own_titles(document):
    text = re.sub(r"[{}]", "", " ".join((ROOT / document).read_text("utf8").split()))
    places = [text.index(part) for part in (CVPR, "10.1109/CVPR.2015.7299073", PREPRINT, "1411.7399")]
    assert places == sorted(places)  # each title is followed by its own number
    assert not re.search(re.escape(PREPRINT) + r"[*.,}\s]*CVPR", text)


def test_addresses_of_the_repository_are_the_same_everywhere():
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["tool"]["fishermix"]
    for project in (LIBRARY, PHOTOS):
        urls = {name.lower(): url for name, url in project["urls"].items()}
        assert {name: urls.get(name, "") for name in ("repository", "issues")} == workspace


def test_every_minimum_is_a_version_that_make_test_minimum_can_pin():
    listing = [sys.executable, ROOT / "tools" / "list_minima.py"]
    pins = subprocess.run(
        [*listing, "serve", "dask"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "scikit-learn==1.6" in pins  # `validate_data` is new in 1.6
    assert "typer==0.16" in pins  # earlier versions fail with click 8.2
    assert "dask[array]==2024.8" in pins
    assert len(pins) >= len(PHOTOS["dependencies"]) + 4
    assert not any(pin.startswith("fishermix") for pin in pins)
    assert len(pins) == len(set(pins))
    assert all(re.fullmatch(r"[\w.\[\]-]+==[\d.]+", pin) for pin in pins)
    wrong = subprocess.run([*listing, "nothing"], capture_output=True, text=True)
    assert wrong.returncode
    assert "neither an extra nor a dependency group 'nothing'" in wrong.stderr
