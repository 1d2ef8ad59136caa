"""Prints the declared minimum versions as pins: `python tools/list_minima.py [extra or group ...]`.

    numpy>=2.0   ->   numpy==2.0

`make test-minimum` installs them and runs the tests, so that the declared minima stay true. `make audit`
looks for known faults in them.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("fishermix", "fishermix-photos", "fishermix-lab")
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+(?:\[[^]]*\])?)>=([0-9.]+)(?:,<[0-9.]+)?(; .+)?")


def read_toml(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text("utf8"))


def list_extras(projects: Sequence[dict]) -> dict[str, list[str]]:
    """What each extra requires, in all packages that have it."""
    extras: dict[str, list[str]] = defaultdict(list)
    for project in projects:
        for name, requirements in project["optional-dependencies"].items():
            extras[name] += requirements
    return extras


def list_minima(projects: Sequence[dict], groups: dict, names: Iterable[str] = ()) -> list[str]:
    """Return `name==minimum` of the dependencies, and of the extras and groups with these names."""
    requirements = [one for project in projects for one in project["dependencies"]]
    extras = list_extras(projects)
    for name in names:
        if name not in extras and name not in groups:
            raise SystemExit(f"There is neither an extra nor a dependency group '{name}' in pyproject.toml.")
        requirements += extras.get(name) or groups[name]
    own = tuple(f"{package}{end}" for package in PACKAGES for end in ("==", "["))
    pins = []
    for requirement in requirements:
        if requirement.startswith(own):
            continue
        match = REQUIREMENT.fullmatch(requirement)
        if not match:
            raise SystemExit(f"pyproject.toml: '{requirement}' has no minimum version such as numpy>=2.0.")
        pins.append(f"{match[1]}=={match[2]}{match[3] or ''}")
    return list(dict.fromkeys(pins))


def read_projects() -> list[dict]:
    return [read_toml(ROOT / "packages" / name)["project"] for name in PACKAGES]


if __name__ == "__main__":
    print("\n".join(list_minima(read_projects(), read_toml(ROOT)["dependency-groups"], sys.argv[1:])))
