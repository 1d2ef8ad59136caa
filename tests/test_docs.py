"""What the documents promise: the README's Python runs, and every public name is explained somewhere."""

import re
from pathlib import Path

import pytest

import fishermix

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_python_of_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf8"), re.DOTALL)
    assert blocks
    for block in blocks:
        names: dict = {}
        exec(block, names)
        assert names["FisherEncoder"](names["mixture"]).transform(names["images"]).shape == (2, 256)
        assert names["mixture"].choice_.shape == (8, 16)


@pytest.mark.parametrize("name", sorted(set(fishermix.__all__) - {"__version__", "FishermixError"}))
def test_every_public_name_is_importable_and_documented(name):
    assert getattr(fishermix, name).__doc__
    assert any(name in document.read_text("utf8") for document in DOCUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text("utf8")):
        assert target.startswith("http") or (document.parent / target).exists(), target
