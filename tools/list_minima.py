"""Prints the declared minimum versions as pins: `python tools/list_minima.py [extra or group ...]`.

    numpy>=1.26   ->   numpy==1.26

`make test-minimum` installs them and runs the tests, so that the declared minima stay true.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("fishermix", "fishermix-photos")
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+(?:\[[^]]*\])?)>=([0-9.]+)")


def read_toml(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text("utf8"))


def list_minima(projects: Sequence[dict], groups: dict, names: Iterable[str] = ()) -> list[str]:
    """Return `name==minimum` of the dependencies, and of the extras and groups with these names."""
    requirements = [one for project in projects for one in project["dependencies"]]
    extras = {name: of for project in projects for name, of in project["optional-dependencies"].items()}
    for name in names:
        if name not in extras and name not in groups:
            raise SystemExit(f"There is neither an extra nor a dependency group '{name}' in pyproject.toml.")
        requirements += extras.get(name) or groups[name]
    own = tuple(f"{package}==" for package in PACKAGES)
    pins = []
    for requirement in requirements:
        if requirement.startswith(own):
            continue
        match = REQUIREMENT.fullmatch(requirement)
        if not match:
            raise SystemExit(f"pyproject.toml: '{requirement}' has no minimum version such as numpy>=1.26.")
        pins.append(f"{match[1]}=={match[2]}")
    return list(dict.fromkeys(pins))


if __name__ == "__main__":
    projects = [read_toml(ROOT / "packages" / name)["project"] for name in PACKAGES]
    print("\n".join(list_minima(projects, read_toml(ROOT)["dependency-groups"], sys.argv[1:])))
