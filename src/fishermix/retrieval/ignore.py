"""Which files and folders an index leaves out: hidden ones, those of other programs, and `.fishermixignore`.

A `.fishermixignore` in any folder has one pattern per line, as .gitignore has, for what lies below it:

    *.gif             every GIF, at any depth
    screenshots/      every folder of this name
    /raw              only what is next to the .fishermixignore
    2019/**/export    * does not match a slash, ** does
    !keep.gif         an exception; the last pattern that matches decides
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from fishermix.errors import FishermixError

IGNORE_FILE = ".fishermixignore"
MOST_BYTES = 1 << 20  # of a .fishermixignore
# Folders in which other programs keep copies and previews of photos, in lower case.
FOLDERS_OF_PROGRAMS = {
    "@eadir",  # Synology
    "#recycle",
    "$recycle.bin",
    "__macosx",
    "node_modules",
    "lost+found",
    "thumbs",
    "thumbnails",
    "_thumbs",
    "thumbnail",
}


class Pattern:
    """parts : one expression per name of a path below `base`; None, from `**`, is any number of names"""

    def __init__(self, base: str, parts: Sequence[re.Pattern[str] | None], folders_only: bool, keeps: bool):
        self.base, self.parts, self.folders_only, self.keeps = base, parts, folders_only, keeps

    def matches(self, path: str, is_folder: bool) -> bool:
        if not path.startswith(self.base) or (self.folders_only and not is_folder):
            return False
        names = path[len(self.base) :].split("/")
        reached = {0}  # numbers of names that the parts so far match
        for position, part in enumerate(self.parts):
            if not reached:
                return False
            if part is None:
                fewest = int(position == len(self.parts) - 1)  # `a/**` is what lies in a, not a itself
                reached = set(range(min(reached) + fewest, len(names) + 1))
            else:
                reached = {n + 1 for n in reached if n < len(names) and part.fullmatch(names[n])}
        return len(names) in reached


def parse_patterns(lines: Iterable[str], base: str = "", where: str = "--exclude") -> list[Pattern]:
    """The patterns of a .fishermixignore in the folder `base`, or of `--exclude`; `where` is for messages."""
    patterns = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        keeps, text = text.startswith("!"), text.removeprefix("!").removeprefix("\\")
        folders_only, text = text.endswith("/"), text.rstrip("/")
        if not text:
            continue
        names = text.removeprefix("/").split("/") if "/" in text else ["**", text]
        try:
            parts = [None if name == "**" else re.compile(_translate(name), re.DOTALL) for name in names]
        except re.error as error:
            place = where if where == "--exclude" else f"{where}, line {number}"
            raise FishermixError(f"{place}: {text!r} is not a pattern ({error.msg}). Correct it.") from error
        patterns.append(Pattern(base, parts, folders_only, keeps))
    return patterns


def _translate(glob: str) -> str:
    """A regular expression of a glob for one name: `*`, `?` and `[…]`.

    What follows a `*` is looked for once, from the left (an atomic group): no name makes it slow.
    """
    chunks, at = [""], 0
    while at < len(glob):
        if glob[at] == "*":
            chunks.append("")
            at += 1
        elif glob[at] == "?":
            chunks[-1], at = chunks[-1] + ".", at + 1
        elif glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
            inside = glob[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            inside = "^" + inside[1:] if inside.startswith("!") else inside
            chunks[-1], at = chunks[-1] + f"[{inside}]", end + 1
        else:
            chunks[-1], at = chunks[-1] + re.escape(glob[at]), at + 1
    first, *others = chunks
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>.*?{chunk})" for chunk in middle if chunk) + f".*{last}"


def read_ignore_file(folder: Path, base: str) -> list[Pattern]:
    """The patterns of the .fishermixignore of a folder; none if there is none. One that cannot be read is an
    error: what it leaves out must not be indexed.
    """
    path = folder / IGNORE_FILE
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FishermixError(
                f"{path} is not a file. Remove it, or write patterns into a file of this name."
            )
        with open(path, encoding="utf8", errors="surrogateescape") as file:
            return parse_patterns(file.read(MOST_BYTES).splitlines(), base, str(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FishermixError(f"{path} cannot be read ({error.strerror}). Correct its permissions.") from error


def is_ignored(path: str, is_folder: bool, patterns: Sequence[Pattern]) -> bool:
    """Whether the last pattern that matches a path, relative to the photo folder, leaves it out."""
    for pattern in reversed(patterns):
        if pattern.matches(path, is_folder):
            return not pattern.keeps
    return False


def is_excluded(path: str, patterns: Sequence[Pattern]) -> bool:
    """Whether a photo, or a folder that contains it, is left out by patterns of the photo folder."""
    if not patterns:
        return False
    names = path.split("/")
    return is_ignored(path, False, patterns) or any(
        is_ignored("/".join(names[:depth]), True, patterns) for depth in range(1, len(names))
    )


def is_folder_of_a_program(name: str) -> bool:
    return name.lower() in FOLDERS_OF_PROGRAMS


def is_skipped_below(parent: Path, folder: Path) -> bool:
    """Whether the index of `parent` leaves out `folder`, which lies in it."""
    names = folder.relative_to(parent).parts
    if any(name.startswith(".") or is_folder_of_a_program(name) for name in names):
        return True
    return is_excluded("/".join((*names, "photo.jpg")), read_ignore_files_above(parent, folder))


def read_ignore_files_above(root: Path, folder: Path) -> list[Pattern]:
    """The patterns of the folders from `root` down to the one that contains `folder`; paths are relative to
    `root`.
    """
    names = folder.relative_to(root).parts
    patterns: list[Pattern] = []
    for depth in range(len(names)):
        above = "".join(f"{name}/" for name in names[:depth])
        patterns += read_ignore_file(root / above, above)
    return patterns
