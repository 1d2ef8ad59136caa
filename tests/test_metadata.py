"""The metadata of the packages, their citation, and the versions they declare."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from datetime import date
from importlib.metadata import packages_distributions
from pathlib import Path

import fishermix
import fishermix_photos
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECTS = LIBRARY, PHOTOS, LAB = [
    tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text("utf8"))["project"]
    for name in ("fishermix", "fishermix-photos", "fishermix-lab")
]


def test_the_version_is_the_same_everywhere():
    version = fishermix.__version__
    citation = (ROOT / "CITATION.cff").read_text("utf8")
    assert re.search(r"(?m)^version: (.+)$", citation)[1] == version
    assert fishermix_photos.__version__ == version
    assert all(project["dynamic"] == ["version"] for project in PROJECTS)  # read from fishermix/__init__.py
    assert f"fishermix=={version}" in PHOTOS["dependencies"]
    assert f"fishermix-photos=={version}" in LAB["dependencies"]


def test_the_newest_release_of_the_change_log_is_this_version():
    newest = re.search(r"(?m)^## (\S+) \(\d{4}-", (ROOT / "CHANGELOG.md").read_text("utf8"))[1]
    assert newest == fishermix.__version__


@pytest.mark.parametrize("project", [LIBRARY, PHOTOS], ids=lambda project: project["name"])
def test_the_metadata_is_complete(project):
    assert project["authors"]
    assert project["urls"]
    assert project["license"].startswith("BSD-3-Clause")
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


@pytest.mark.parametrize(
    "document", ["packages/fishermix-lab/README.md", "docs/cite.md", "docs/start/paper.md", "CITATION.cff"]
)
def test_every_citation_gives_both_versions_of_the_paper_their_own_titles(document):
    text = re.sub(r"[{}]", "", " ".join((ROOT / document).read_text("utf8").split()))
    places = [text.index(part) for part in (CVPR, "10.1109/CVPR.2015.7299073", PREPRINT, "1411.7399")]
    assert places == sorted(places)  # each title is followed by its own number
    assert not re.search(re.escape(PREPRINT) + r"[*.,}\s]*CVPR", text)


def test_addresses_of_the_repository_are_the_same_everywhere():
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["tool"]["fishermix"]
    for project in PROJECTS:
        urls = {name.lower(): url for name, url in project["urls"].items()}
        assert {name: urls.get(name, "") for name in ("repository", "issues")} == workspace


def test_every_minimum_is_a_version_that_make_test_minimum_can_pin():
    listing = [sys.executable, ROOT / "tools" / "list_minima.py"]
    pins = subprocess.run(
        [*listing, "serve", "dask"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "scikit-learn==1.6" in pins  # `validate_data` is new in 1.6
    assert "typer==0.16" in pins  # earlier versions fail with click 8.2
    assert "dask[array]==2026.1.1" in pins
    assert len(pins) >= len(PHOTOS["dependencies"]) + 4
    assert not any(pin.startswith("fishermix") for pin in pins)
    assert all(re.fullmatch(r"[\w.\[\]-]+==[\d.]+", pin) for pin in pins)
    wrong = subprocess.run([*listing, "nothing"], capture_output=True, text=True)
    assert wrong.returncode
    assert "neither an extra nor a dependency group 'nothing'" in wrong.stderr


def test_no_package_has_two_minima():
    """pip refuses two different pins of one package."""
    extras = {name for project in PROJECTS for name in project["optional-dependencies"]}
    listing = [sys.executable, ROOT / "tools" / "list_minima.py", "test", *extras]
    pins = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()
    names = [pin.partition("==")[0].partition("[")[0] for pin in pins]
    assert sorted(names) == sorted(set(names))


def test_the_makefile_installs_all_extras_but_torch():
    [listed] = re.findall(r"(?m)^EXTRAS := (.*)$", (ROOT / "Makefile").read_text("utf8"))
    extras = {name for project in PROJECTS for name in project["optional-dependencies"]}
    assert sorted(listed.split()) == sorted(extras - {"torch"})


def test_every_target_of_the_makefile_is_made_even_if_a_file_has_its_name():
    makefile = (ROOT / "Makefile").read_text("utf8")
    [phony] = re.findall(r"(?m)^\.PHONY: (.*)$", makefile)
    assert sorted(phony.split()) == sorted(re.findall(r"(?m)^([a-z][a-z0-9-]*):", makefile))


def test_an_audit_that_cannot_reach_its_service_fails():
    nobody = {"FISHERMIX_ADVISORIES": "http://127.0.0.1:9/pypi/pip/26.0/json"}
    command = [sys.executable, ROOT / "tools" / "audit.py"]
    done = subprocess.run(command, env=os.environ | nobody, capture_output=True, text=True)
    assert done.returncode == 1
    assert nobody["FISHERMIX_ADVISORIES"] in done.stderr


# What a package imports only where it happens to be installed.
IF_INSTALLED = {"fishermix": {"rich"}, "fishermix-photos": {"scikit-image"}, "fishermix-lab": set()}


def list_requirements(project):
    """The names of all distributions that a project declares, with its extras."""
    extras = [text for of in project["optional-dependencies"].values() for text in of]
    return {canonicalize_name(Requirement(text).name) for text in [*project["dependencies"], *extras]}


def list_imports(folder):
    """The first names of all modules that the files of a folder import, at any place."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module.partition(".")[0]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project["name"])
def test_what_a_package_imports_is_declared(project):
    """What is there only because another package needs it has no minimum version."""
    installed = PROJECTS[
        : PROJECTS.index(project) + 1
    ]  # each requires the ones before it, in its own version
    declared = IF_INSTALLED[project["name"]].union(*map(list_requirements, installed), [project["name"]])
    distributions = packages_distributions()
    for module in set(list_imports(ROOT / "packages" / project["name"] / "src")) - sys.stdlib_module_names:
        assert declared & {canonicalize_name(name) for name in distributions.get(module, [module])}, module
