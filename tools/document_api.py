"""Writes the reference pages of the library: one page per public name, one per package that lists its names.

The public names are those in `__all__` of `fishermix` and of the packages in `PACKAGES`.
"""

import inspect
import shutil
from importlib import import_module
from pathlib import Path

# In the order of the reference: what a scientist looks up first comes first.
PACKAGES = [
    "mixture",
    "fisher",
    "cca",
    "text",
    "vision",
    "model",
    "caption",
    "retrieval",
    "evaluation",
    "datasets",
    "rows",
    "distributed",
]


def list_public_names() -> dict[str, list[str]]:
    """The names that each package exports, by the name of the package."""
    names = {f"fishermix.{package}": import_module(f"fishermix.{package}").__all__ for package in PACKAGES}
    elsewhere = {name for exported in names.values() for name in exported}
    own = [name for name in import_module("fishermix").__all__ if name not in elsewhere]
    return {"fishermix": own, **names}


def write_pages(folder: Path) -> None:
    """Write all pages into an empty folder; `index.md` lists the packages."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    packages = list_public_names()
    listed = "\n".join(packages)
    (folder / "index.md").write_text(
        "# Library\n\n"
        "The names that `fishermix` itself exports can be imported from there as well: "
        "`from fishermix import HybridMixture`. Everything that this reference does not list may change "
        "in any release.\n\n"
        f"```{{toctree}}\n:maxdepth: 2\n\n{listed}\n```\n",
        "utf8",
    )
    for package, names in packages.items():
        (folder / f"{package}.md").write_text(_describe_package(package, names), "utf8")
        for name in names:
            if not _is_constant(package, name):
                (folder / f"{package}.{name}.rst").write_text(_describe_name(package, name), "utf8")


def _is_constant(package: str, name: str) -> bool:
    return not callable(getattr(import_module(package), name))


def _describe_package(package: str, names: list[str]) -> str:
    module = import_module(package)
    introduction = "Errors and warnings." if package == "fishermix" else inspect.getdoc(module)
    documented = [name for name in names if not _is_constant(package, name)]
    rows = [
        f"| [`{name}`]({package}.{name}.rst) | {_summarize(getattr(module, name))} |" for name in documented
    ]
    pages = "\n".join(f"{name} <{package}.{name}>" for name in documented)
    return (
        f"# {package}\n\n{introduction}\n\n| name | purpose |\n|---|---|\n"
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
    if not inspect.isclass(value):
        return f"{title}.. autofunction:: {name}\n"
    return f"{title}.. autoclass:: {name}\n   :members:\n   :inherited-members:\n"
