"""Move the lines of `changes/*.md` to the change log, below "Changes" of its first release.

python tools/collect_changes.py
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def collect_changes(root: Path) -> int:
    """Move the lines, and return their number."""
    fragments = sorted(path for path in (root / "changes").glob("*.md") if path.name != "README.md")
    lines = [
        line.removeprefix("- ") for path in fragments for line in path.read_text("utf8").split("\n") if line
    ]
    log = root / "CHANGELOG.md"
    text = log.read_text("utf8")
    section = re.search(r"^### Changes\n((?:- .*\n|  .*\n)*)", text, re.MULTILINE)
    if section is None:
        raise SystemExit(f"{log} has no section '### Changes'.")
    added = "".join(f"- {line}\n" for line in lines)
    log.write_text(text[: section.end()] + added + text[section.end() :], "utf8")
    for path in fragments:
        path.unlink()
    return len(lines)


if __name__ == "__main__":
    print(f"{collect_changes(ROOT)} lines were added to CHANGELOG.md.")
