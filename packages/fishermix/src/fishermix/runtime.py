"""What fishermix asks of the machine: cores, optional packages, and modules that load on first use."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

DISTRIBUTIONS = ("fishermix", "fishermix-photos")


def available_threads() -> int:
    """The number of cores this process may use, or fewer if OMP_NUM_THREADS asks for fewer."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(wanted)) if wanted.isdigit() and int(wanted) > 0 else cores


def find_commit() -> str | None:
    """The commit of the checkout that this package runs from, with "-dirty" if a package has changed.

    None for an installed package, or without git.
    """
    import subprocess

    root = Path(__file__).parents[4]  # packages/fishermix/src/fishermix is below it
    if not (root / ".git").exists():
        return None

    def ask(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = ask("diff", "--name-only", "HEAD", "--", "packages")
        return ask("rev-parse", "--short", "HEAD") + "-dirty" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None


def export_lazily(package: str, module_of: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose public names are defined in these of its modules.

    They are imported on first use: a search should not wait for a compiler.
    """

    def __getattr__(name: str) -> object:
        if name in module_of:
            return getattr(import_module(f"{package}.{module_of[name]}"), name)
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return __getattr__


def list_extras() -> dict[str, tuple[str, list[str]]]:
    """The distribution and the packages of each extra of the installed distributions."""
    from importlib.metadata import PackageNotFoundError, requires

    extras: dict[str, tuple[str, list[str]]] = {}
    for distribution in DISTRIBUTIONS:
        try:
            requirements = requires(distribution) or []
        except PackageNotFoundError:
            continue
        for requirement in requirements:
            if found := re.match(r"([\w.-]+).*\bextra == ['\"]([\w-]+)['\"]", requirement):
                extras.setdefault(found[2], (distribution, []))[1].append(found[1])
    return extras


def install_command(extra: str) -> str:
    """The command that installs what an extra needs.

    pip takes the extras of an installed distribution from its metadata, also if no package index has it. In
    an environment of pipx, pip would install the packages elsewhere.
    """
    distribution, packages = list_extras().get(extra, (DISTRIBUTIONS[0], []))
    if packages and os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return f"pipx inject fishermix-photos {' '.join(packages)}"
    return f"pip install '{distribution}[{extra}]'"
