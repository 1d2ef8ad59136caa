"""The site: `make docs` builds it. The reference is made from the program before Sphinx reads its pages."""

import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import document_api  # noqa: E402
import document_commands  # noqa: E402
from fishermix import __version__  # noqa: E402
from sphinx.ext.autodoc.mock import mock  # noqa: E402

project = "fishermix"
author = "The fishermix developers"
copyright = "the fishermix developers"
release = version = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "sphinx_design",
]
nitpicky = True
nitpick_ignore_regex = [("py:class", r"fishermix\.mixture\.m_step\..*")]  # how EM fits a family is not public
default_role = "literal"  # `name` in a docstring is code
# Records of judges, queries, attacks and fuzzing stay in the repository.
exclude_patterns = ["_build", "figures", "fuzzing.md", "judgements.md", "queries.md", "security.md"]

suppress_warnings = ["config.cache"]

autodoc_mock_imports = ["torch"]  # only training a captioner needs it, and it is a large download
autodoc_typehints = "none"  # the docstrings name types and shapes
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # autodoc lists them

myst_enable_extensions = ["deflist", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

# Other projects' names that our pages link to are listed in docs/inventories: the build needs no network.
intersphinx_mapping = {
    "numpy": ("https://numpy.org/doc/stable/", "inventories/numpy.inv"),
    "scipy": ("https://docs.scipy.org/doc/scipy/", "inventories/scipy.inv"),
    "sklearn": ("https://scikit-learn.org/stable/", "inventories/sklearn.inv"),
}

# Formulas are drawn by one file of MathJax, which the site carries: no network here, either.
_mathjax = find_spec("sphinx-mathjax-offline")
assert _mathjax is not None
assert _mathjax.origin is not None
mathjax_path = "tex-svg.js"
html_static_path = ["_static", str(Path(_mathjax.origin).parent / "static" / "mathjax" / mathjax_path)]
html_css_files = ["site.css"]

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples" / "gallery"),
    "backreferences_dir": "gallery/backreferences",  # "Examples" in the reference
    "doc_module": document_api.ROOTS,
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "image_scrapers": ("matplotlib",),
    "download_all_examples": False,
    "show_memory": False,
    "remove_config_comments": True,
    "min_reported_time": 1,
    "abort_on_example_error": True,
}

html_theme = "furo"
html_title = f"fishermix {release}"
html_theme_options = {"navigation_with_keys": True}
# Addresses of the source and of its issues, from the one place that has them. Empty: none.
_addresses = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["tool"]["fishermix"]
if _addresses["repository"]:
    html_theme_options |= {
        "source_repository": _addresses["repository"],
        "source_branch": "main",
        "source_directory": "docs/",
    }
html_theme_options["footer_icons"] = [
    {"name": name.capitalize(), "url": address, "html": name.capitalize(), "class": ""}
    for name, address in _addresses.items()
    if address
]
copybutton_exclude = ".linenos, .gp, .go"


# Documents outside this folder that the site shows as pages of its own.
_PRETRAINED = "../packages/fishermix-photos/src/fishermix_photos/pretrained"
_PAGE_OF = {
    "../SECURITY.md": "security_policy.md",
    f"{_PRETRAINED}/model/MODEL_CARD.md": "model_card.md",
    f"{_PRETRAINED}/all-MiniLM-L6-v2/MODEL_CARD.md": "transformer_card.md",
    "../CHANGELOG.md": "changelog.md",
}


def _link_to_pages(app, name, source) -> None:
    for path, page in _PAGE_OF.items():
        source[0] = source[0].replace(f"]({path})", f"]({page})")


def _make_reference(app) -> None:
    with mock(autodoc_mock_imports):
        document_api.write_pages(Path(app.srcdir, "reference", "api"))
    document_commands.write_pages(Path(app.srcdir, "reference", "commands"))


def _skip_foreign(app, what, name, member, skip, options):
    """Inherited members of other packages have their own documentation."""
    function = getattr(member, "fget", member)
    module = getattr(
        getattr(function, "__objclass__", function), "__module__", None
    )  # builtins have the class
    return True if module is not None and not module.startswith("fishermix") else None


def _add_return(app, what, name, value, options, lines) -> None:
    """Methods whose docstring does not say what they return get the annotated type; numpydoc formats it."""
    if what in ("function", "method"):
        lines += document_api.describe_return(value)


def setup(app) -> None:
    app.connect("builder-inited", _make_reference, priority=100)
    app.connect("source-read", _link_to_pages)
    app.connect("autodoc-skip-member", _skip_foreign)
    app.connect("autodoc-process-docstring", _add_return, priority=100)
