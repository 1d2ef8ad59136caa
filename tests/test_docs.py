"""What the documents promise: their Python runs, and every public name is explained somewhere."""

import ast
import builtins
import doctest
import inspect
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import document_api
import document_commands
import fishermix
import fishermix_photos
import pytest
from fishermix_photos.model.saved import SHIPPED

ROOT = Path(__file__).parent.parent

DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/start").glob("*.md")),
    *sorted((ROOT / "packages").glob("*/README.md")),
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


@pytest.mark.slow
def test_the_python_of_the_page_on_clusters_runs(tmp_path):
    script = "\n".join(python_of(ROOT / "docs" / "distributed.md"))
    assert script.count("HybridMixture(4).fit(") == 6
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Other tests compare the results of these pages, too.
CHECKED_ELSEWHERE = {
    ROOT / "packages" / "fishermix" / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("distributed", "fisher")),
}
PAGES = [path for path in DOCUMENTS if python_of(path) and path not in CHECKED_ELSEWHERE]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
@pytest.mark.filterwarnings("ignore")
def test_the_python_of_a_page_runs(page, desk):
    exec("\n".join(python_of(page)), {})


def test_the_python_of_the_readme_of_the_library_runs():
    blocks = python_of(ROOT / "packages" / "fishermix" / "README.md")
    assert blocks
    for block in blocks:
        names: dict = {}
        exec(block, names)
        assert names["encoder"].transform(names["images"]).shape == (2, 256)
        assert names["mixture"].choice_.shape == (8, 16)


@pytest.mark.parametrize(
    ("package", "name"),
    [
        (package, name)
        for package in (fishermix, fishermix_photos)
        for name in sorted(set(package.__all__) - {"__version__", "FishermixError"})
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_every_public_name_is_importable_and_documented(package, name):
    assert getattr(package, name).__doc__
    assert any(name in document.read_text("utf8") for document in DOCUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text("utf8")):
        made_by_the_build = target.removeprefix("../").startswith(("gallery/", "reference/"))
        assert target.startswith("http") or made_by_the_build or (document.parent / target).exists(), target


def list_anchors(document):
    """The anchors of the headings of a document, as Markdown makes them."""
    headings = re.findall(r"(?m)^#+ (.+)$", document.read_text("utf8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_headings(document):
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", document.read_text("utf8"))
    for target, anchor in links:
        assert anchor in list_anchors(document.parent / target if target else document), (target, anchor)


def list_commands_in(document):
    """The calls of `fishermix` in code: lines of blocks, and code inside of a line."""
    text = document.read_text("utf8")
    blocks = "\n".join(re.findall(r"(?ms)^```\w*\n(.*?)^```", text))
    yield from re.findall(r"(?m)^(?:\$ )?(fishermix [^\n#|]+)", blocks)
    yield from re.findall(r"(?m)^    (fishermix [^\n#|]+)", text)
    yield from re.findall(r"`(fishermix [^`\n]+)`", text)


COMMANDS = document_commands.list_commands()
CALLS = sorted({(path.name, call.strip()) for path in DOCUMENTS for call in list_commands_in(path)})


@pytest.mark.parametrize(("document", "call"), CALLS, ids=lambda value: value)
def test_every_command_in_a_document_exists(document, call):
    words = re.sub(r"[…\\]|\|.*", " ", call).split()
    general = {"--quiet", "-q", "--version", "--help", "--install-completion", "--show-completion", "-h"}
    words = [word for word in words if word not in general]
    names = {name: name.split() for name in COMMANDS}
    found = [name for name, parts in names.items() if words[: len(parts)] == parts]
    groups = {part for parts in names.values() for part in parts[1:-1]}
    if not found:  # `fishermix` alone, a placeholder, or a group
        assert len(words) == 1 or words[1] == "COMMAND" or words[1].rstrip(",") in groups, call
        return
    options = {option for parameter in COMMANDS[found[0]].params for option in parameter.opts}
    options |= {option for parameter in COMMANDS[found[0]].params for option in parameter.secondary_opts}
    used = {word.partition("=")[0] for word in words if re.fullmatch(r"--?[A-Za-z0][\w=-]*", word)}
    assert used <= options, used - options


def test_documents_and_gallery_import_public_names_only():
    public = {(module, name) for module, names in document_api.list_public_names().items() for name in names}
    public |= {
        (root, name) for root in document_api.ROOTS for name in getattr(import_module(root), "__all__", ())
    }
    sources = {path.name: "\n".join(python_of(path)) for path in DOCUMENTS}
    sources |= {path.name: path.read_text("utf8") for path in (ROOT / "examples" / "gallery").glob("*.py")}
    private = {
        (source, node.module, alias.name)
        for source, text in sources.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(document_api.ROOTS)
        for alias in node.names
        if (node.module, alias.name) not in public
    }
    assert not private


def list_installations():
    """Our packages that a document installs with pip or pipx, with the name of the document."""
    for document in DOCUMENTS:
        for line in re.findall(r"pipx? install ([^`#\n]+)", document.read_text("utf8")):
            yield from ((document.name, word.strip("'\"")) for word in line.split() if "fishermix" in word)


@pytest.mark.parametrize(("document", "requirement"), sorted(set(list_installations())))
def test_pip_installs_folders_of_the_checkout_or_extras(document, requirement):
    path, name, extras = re.fullmatch(r"([./]*packages/)?([\w-]+)(?:\[([\w,]+)\])?", requirement).groups()
    assert path or extras, "no package index has these names"
    project = tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text("utf8"))["project"]
    assert set((extras or "").split(",")) - {""} <= set(project["optional-dependencies"])


@pytest.mark.parametrize(
    "inventory", sorted((ROOT / "docs" / "inventories").iterdir()), ids=lambda path: path.stem
)
def test_names_of_other_projects_exist(inventory):
    lines = inventory.read_text("utf8").splitlines()
    assert lines[0] == "# Sphinx inventory version 1"
    for name, kind, _ in map(str.split, lines[3:]):
        module, _, attribute = name.rpartition(".")
        found = getattr(import_module(module), attribute)
        assert kind == "data" or inspect.isclass(found) == (kind == "class"), name


@pytest.mark.parametrize("document", [*DOCUMENTS, SHIPPED / "MODEL_CARD.md"], ids=lambda path: path.name)
def test_tables_have_one_number_per_cell(document):
    rows = re.findall(r"(?m)^\|.*\|$", document.read_text("utf8"))
    crowded = [row for row in rows if re.search(r"\| *\**[\d.]+( [\d.]+)+\** *\|", row)]
    assert not crowded
