"""The optional packages: which extra of fishermix installs them, and the command that does it."""

from __future__ import annotations

EXTRAS = {
    "raw": ("rawpy",),
    "video": ("av",),
    "jxl": ("pillow-jxl-plugin",),
    "tiff": ("tifffile",),
    "caption": ("torch",),
    "serve": ("fastapi", "uvicorn", "segno"),
    "watch": ("watchfiles",),
    "dask": ("dask", "distributed", "pyarrow"),
    "faiss": ("faiss-cpu",),
    "postgres": ("psycopg", "pgvector"),
    "plots": ("matplotlib",),
    "export": ("onnx",),
}


def install_command(extra: str) -> str:
    """The command that installs what an extra needs.

    pip would look for `fishermix[...]` in a package index. If fishermix was installed from a file, a folder
    or a repository, it may not be there, so the command names the packages instead.
    """
    if is_from_index():
        return f"pip install 'fishermix[{extra}]'"
    return f"pip install {' '.join(EXTRAS[extra])}"


def is_from_index() -> bool:
    """Whether pip installed fishermix from a package index (PEP 610: then there is no `direct_url.json`)."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution("fishermix").read_text("direct_url.json") is None
    except PackageNotFoundError:
        return False
