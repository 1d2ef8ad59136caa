"""What the documents promise: their Python runs, and every public name is explained somewhere."""

import ast
import builtins
import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fishermix

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/start").glob("*.md")),
]


def python_of(document):
    """The blocks of Python in a document, those with prompts as a script."""
    blocks = re.findall(r"```python\n(.*?)```", document.read_text("utf8"), re.DOTALL)
    return [doctest.script_from_examples(block) if ">>>" in block else block for block in blocks]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_name_in_the_python_of_a_document_comes_from_somewhere(document):
    tree = ast.parse("\n".join(python_of(document)))
    known = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names: dict = {}
            exec(compile(ast.Module([node], []), document.name, "exec"), names)
            known |= set(names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert used <= known, used - known


def test_the_python_of_the_page_on_clusters_runs(tmp_path):
    script = "\n".join(python_of(ROOT / "docs" / "distributed.md"))
    assert script.count("HybridMixture(4).fit(") == 9
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", ["start/library.md", "measures.md"])
def test_the_python_of_a_page_runs(page):
    blocks = python_of(ROOT / "docs" / page)
    assert blocks
    exec("\n".join(blocks), {})


def test_the_python_of_the_readme_runs():
    blocks = python_of(ROOT / "README.md")
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
        made_by_the_build = target.removeprefix("../").startswith(("gallery/", "reference/"))
        assert target.startswith("http") or made_by_the_build or (document.parent / target).exists(), target
