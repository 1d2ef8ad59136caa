"""Writes the reference pages of both packages: one page per public name and one per module.

Public are the names that `fishermix` and `fishermix_photos` export, and those in `MODULES`. A test checks
that the documents and the gallery import no others.
"""

import inspect
import re
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

ROOTS = ("fishermix", "fishermix_photos", "fishermix_lab")
# What is public in modules below the roots, in the order of the reference.
MODULES = {
    "fishermix.mixture": "Family Gaussian Laplace Logistic Shape StudentT check_family register_family",
    "fishermix.cca.covariances": "CovarianceSums",
    "fishermix.text.whitening": "Whitening",
    "fishermix.text.tokens": "tokenize",
    "fishermix.joint.ranks": "figures task_ranks compare_recalls",
    "fishermix.rows": "block_rows StreamSource",
    "fishermix_photos.search.terms": "Term parse_query parse_arguments",
    "fishermix_photos.index.filters": "Filter",
    "fishermix_photos.search.notes": "Note",
    "fishermix_photos.photos.details": "Details",
    "fishermix_photos.search.results": "Photo Results Changes FolderStatus Summary Facets "
    "LibraryBusy LibraryDamaged OtherModel OtherVersion FolderAway NotInLibrary UnknownPhoto",
    "fishermix_photos.photos.open": "open_photo list_photos",
    "fishermix_photos.model.transformer": "SentenceTransformer",
    "fishermix_lab.captions.measures": "caption_scores",
    "fishermix_lab.training": "train_model evaluate_model",
    "fishermix_lab.recipe": "Recipe find_recipe",
    "fishermix_lab.datasets.readers": "open_dataset combine",
}


def list_public_names() -> dict[str, list[str]]:
    """The public names of each module."""
    names = {module: listed.split() for module, listed in MODULES.items()}
    elsewhere = {name for listed in names.values() for name in listed}
    found = {}
    for root in ROOTS:
        own = [name for name in getattr(import_module(root), "__all__", ()) if name not in elsewhere]
        found |= {root: own}
        found |= {module: listed for module, listed in names.items() if module.partition(".")[0] == root}
    return found


def write_pages(folder: Path) -> None:
    """Write all pages into an empty folder; `index.md` lists the modules."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    packages = list_public_names()
    listed = "\n".join(packages)
    (folder / "index.md").write_text(
        "# Python\n\n"
        "Everything that this reference does not list may change in any release.\n\n"
        f"```{{toctree}}\n:maxdepth: 2\n\n{listed}\n```\n",
        "utf8",
    )
    for package, names in packages.items():
        (folder / f"{package}.md").write_text(_describe_package(package, names), "utf8")
        for name in names:
            if not is_constant(package, name):
                (folder / f"{package}.{name}.rst").write_text(_describe_name(package, name), "utf8")


def is_constant(package: str, name: str) -> bool:
    """Constants are listed by no page: they have no docstring."""
    return not callable(getattr(import_module(package), name))


def describe_return(function: Callable) -> list[str]:
    """The lines of a section with the annotated type, for a docstring without one of its own."""
    docstring = inspect.getdoc(function) or ""
    if re.search(r"^(Returns|Yields)\n-", docstring, re.MULTILINE):
        return []
    annotation = inspect.signature(function).return_annotation
    if annotation in (None, "None", inspect.Signature.empty):
        return []
    named = inspect.formatannotation(annotation) if not isinstance(annotation, str) else annotation
    return ["", "Returns", "-------", named.replace("np.", "")]


def _describe_package(package: str, names: list[str]) -> str:
    module = import_module(package)
    documented = [name for name in names if not is_constant(package, name)]
    rows = [
        f"| [`{name}`]({package}.{name}.rst) | {_summarize(getattr(module, name))} |" for name in documented
    ]
    pages = "\n".join(f"{name} <{package}.{name}>" for name in documented)
    return (
        f"# {package}\n\n{inspect.getdoc(module)}\n\n| name | purpose |\n|---|---|\n"
        + "\n".join(rows)
        + f"\n\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"
    )


def _summarize(value: object) -> str:
    """The first paragraph of a docstring, as a cell of a Markdown table."""
    paragraph = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


def _describe_name(package: str, name: str) -> str:
    value = getattr(import_module(package), name)
    title = f"{name}\n{'=' * len(name)}\n\n.. currentmodule:: {package}\n\n"
    examples = f"\n.. minigallery:: {package}.{name}\n   :add-heading: Examples using {name}\n"
    if not inspect.isclass(value):
        return f"{title}.. autofunction:: {name}\n{examples}"
    return f"{title}.. autoclass:: {name}\n   :members:\n   :inherited-members:\n{examples}"
