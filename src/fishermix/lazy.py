"""The public names of a package, imported on first use: a search should not wait for a compiler."""

from collections.abc import Callable, Mapping
from importlib import import_module


def export(package: str, module_of: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose public names are defined in these of its modules."""

    def __getattr__(name: str) -> object:
        if name in module_of:
            return getattr(import_module(f"{package}.{module_of[name]}"), name)
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return __getattr__
