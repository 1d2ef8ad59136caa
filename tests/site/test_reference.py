"""The reference is complete: every public name has a page; what the packages export is described fully."""

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import document_api
import document_commands
import pytest

ROOT = Path(__file__).parent.parent.parent

docscrape = pytest.importorskip("numpydoc.docscrape")
sphinx_docscrape = pytest.importorskip("numpydoc.docscrape_sphinx")
docutils_core = pytest.importorskip("docutils.core")

PUBLIC = [
    (package, name)
    for package, names in document_api.list_public_names().items()
    for name in names
    if callable(getattr(import_module(package), name))
]


def list_callables():
    """(name, function or class) of every public function, class, and method that fishermix defines."""
    for package, name in PUBLIC:
        value = getattr(import_module(package), name)
        yield f"{package}.{name}", value
        for method, member in inspect.getmembers(value, inspect.isroutine) if inspect.isclass(value) else []:
            ours = (getattr(member, "__module__", "") or "").startswith("fishermix")
            if ours and not method.startswith("_"):
                yield f"{package}.{name}.{method}", member


def list_parameters(value):
    """The names that a caller may pass; of a class, those of its constructor."""
    if inspect.isclass(value) and issubclass(value, Exception):
        return []
    names = [
        name
        for name, parameter in inspect.signature(value).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def describe_parameters(value):
    """The described names of a docstring: `a, b : array` describes two."""
    docstring = inspect.getdoc(value) or ""
    sections = docscrape.NumpyDocString(docstring)
    entries = [*sections["Parameters"], *sections["Attributes"]]
    return {
        name.strip().lstrip("*"): " ".join(entry.desc)
        for entry in entries
        for name in entry.name.partition(":")[0].split(",")
    }


CALLABLES = dict(list_callables())
NAMES = [f"{package}.{name}" for package, name in PUBLIC]  # without methods, which have a sentence
EXPORTED = [name for name in NAMES if name.count(".") == 1]


@pytest.mark.parametrize("name", CALLABLES)
def test_every_public_name_is_described(name):
    assert inspect.getdoc(CALLABLES[name]), f"{name} has no docstring"


@pytest.mark.parametrize("name", EXPORTED)
def test_every_parameter_of_what_a_package_exports_is_described(name):
    value = CALLABLES[name]
    described = describe_parameters(value)
    missing = [parameter for parameter in list_parameters(value) if not described.get(parameter)]
    assert not missing, f"{name} does not describe {', '.join(missing)}"


def returns_something(value):
    """Whether a function returns something; a class is described by its attributes."""
    return not inspect.isclass(value) and inspect.signature(value).return_annotation not in (None, "None")


RETURNING = [name for name, value in CALLABLES.items() if returns_something(value)]


@pytest.mark.parametrize("name", RETURNING)
def test_the_site_says_what_a_function_or_method_returns(name):
    """In a section of the docstring, or with the annotated type, which has to be one."""
    docstring = "\n".join([inspect.getdoc(CALLABLES[name]), *document_api.describe_return(CALLABLES[name])])
    sections = docscrape.NumpyDocString(docstring)
    [first, *_] = sections["Returns"] or sections["Yields"]
    assert first.type or first.name, f"{name} does not say what it returns"
    assert "Any" not in (first.type, first.name), f"{name} does not say what it returns"


MOST_USED = [
    "fit",
    "fit_transform",
    "transform",
    "transform_y",
    "fit_predict",
    "predict",
    "predict_proba",
    "sample",
    "score",
    "score_samples",
    "embed_left",
    "embed_right",
    "encode_images",
    "encode_text",
    "similarity",
    "most_similar",
    "search",
    "caption",
]


@pytest.mark.parametrize(
    "name", [name for name in RETURNING if name in NAMES or name.rpartition(".")[2] in MOST_USED]
)
def test_functions_and_the_methods_used_most_describe_what_they_return(name):
    sections = docscrape.NumpyDocString(inspect.getdoc(CALLABLES[name]))
    assert sections["Returns"] or sections["Yields"], f"{name} does not say what it returns"


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLABLES)
def test_docstrings_are_formatted_without_warnings(name):
    """What docutils warns of fails `make docs`, such as continuation lines of `name : description`."""
    docstring = str(sphinx_docscrape.SphinxDocString(inspect.getdoc(CALLABLES[name])))
    tree = docutils_core.publish_doctree(docstring, settings_overrides={"report_level": 5, "halt_level": 5})
    messages = [node for node in tree.findall() if node.tagname == "system_message" and node["level"] > 1]
    known_to_sphinx = re.compile("Unknown (directive type|interpreted text role)")
    assert not [node.astext() for node in messages if not known_to_sphinx.search(node.astext())]


# Objects that only our own functions make, and that are described by their attributes.
RECORDS = {"Note", "Photo", "Results", "Changes", "FolderStatus", "Summary", "Facets", "Details"}
WITH_EXAMPLES = [
    f"{package}.{name}"
    for package, name in PUBLIC
    if not (inspect.isclass(value := getattr(import_module(package), name)) and issubclass(value, Exception))
    and name not in RECORDS
]


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_EXAMPLES)
@pytest.mark.filterwarnings("ignore")
def test_every_public_name_has_an_example_that_runs(name, desk):
    value = CALLABLES[name]
    module = import_module(inspect.unwrap(value).__module__)
    found = doctest.DocTestFinder(recurse=False).find(value, name, module)
    assert any(test.examples for test in found), f"{name} has no example"
    for test in found:
        assert not any(doctest.SKIP in example.options for example in test.examples)
        assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("root", document_api.ROOTS)
def test_every_exported_class_says_what_else_to_look_at(root):
    exported = [name for name in WITH_EXAMPLES if name.count(".") == 1 and name.startswith(f"{root}.")]
    for name in exported:
        assert docscrape.NumpyDocString(inspect.getdoc(CALLABLES[name]))["See Also"], name


def test_every_public_name_has_a_page(tmp_path):
    document_api.write_pages(tmp_path)
    for package, name in PUBLIC:
        page = (tmp_path / f"{package}.{name}.rst").read_text()
        assert f":: {name}\n" in page
        assert f"[`{name}`]" in (tmp_path / f"{package}.md").read_text()


@pytest.mark.parametrize("root", document_api.ROOTS)
def test_every_exported_name_is_public(root):
    exported = set(getattr(import_module(root), "__all__", ())) - {"__version__"}
    assert exported <= {name for package, name in PUBLIC if package.partition(".")[0] == root}


@pytest.mark.parametrize("command", document_commands.list_commands())
def test_every_option_of_a_command_is_described(command):
    found = document_commands.list_commands()[command]
    assert found.help, f"{command} has no help"
    page = document_commands.describe_command(command, found)
    for parameter in found.params:
        assert parameter.help, f"{command}: {parameter.name} has no help"
        if parameter.param_type_name == "option":
            for option in parameter.opts:
                assert option in page
