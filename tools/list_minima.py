"""Prints the declared minimum versions as pins: `python tools/list_minima.py [extra or group ...]`.

    numpy>=1.26   ->   numpy==1.26

`make test-minimum` installs them and runs the tests of the library, so that the declared minima stay true.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+(?:\[[^]]*\])?)>=([0-9.]+)")


def list_minima(pyproject: dict, names: Iterable[str] = ()) -> list[str]:
    """Return `name==minimum` of the dependencies, and of the extras and groups with these names."""
    project, groups = pyproject["project"], pyproject.get("dependency-groups", {})
    requirements = list(project["dependencies"])
    for name in names:
        extras = project["optional-dependencies"]
        if name not in extras and name not in groups:
            raise SystemExit(f"There is neither an extra nor a dependency group '{name}' in pyproject.toml.")
        requirements += extras.get(name) or groups[name]
    pins = []
    for requirement in requirements:
        match = REQUIREMENT.fullmatch(requirement)
        if not match:
            raise SystemExit(f"pyproject.toml: '{requirement}' has no minimum version such as numpy>=1.26.")
        pins.append(f"{match[1]}=={match[2]}")
    return pins


if __name__ == "__main__":
    print("\n".join(list_minima(tomllib.loads(PYPROJECT.read_text()), sys.argv[1:])))
