"""Looks for known faults in the minimum versions of all dependencies: `python tools/audit.py` (pip-audit).

The faults come from the advisory service of the package index. Without it, nothing is audited: the command
says so and fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from list_minima import list_extras, list_minima, read_projects

SERVICE = os.environ.get("FISHERMIX_ADVISORIES", "https://pypi.org/pypi/pip/26.0/json")


def main() -> int:
    try:
        with urllib.request.urlopen(SERVICE, timeout=30):
            pass
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        print(f"Nothing was audited: {SERVICE} cannot be reached ({reason}).", file=sys.stderr)
        return 1
    projects = read_projects()
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "minima.txt"
        pins.write_text("\n".join(list_minima(projects, {}, list_extras(projects))) + "\n", "utf8")
        command = (sys.executable, "-m", "pip_audit", "--strict", "--no-deps", "--disable-pip")
        return subprocess.run([*command, "--requirement", pins], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
