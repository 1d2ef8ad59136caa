"""The photos of a folder: which files count, and which are left out.

Left out are hidden files, folders of other programs, symbolic links, and what a `.fishermixignore` names. It
has one pattern per line, as .gitignore has, for what lies below it:

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
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fishermix.errors import FishermixError

from fishermix_photos.photos.formats import RAW, VIDEO, Format, find_format

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".fishermixignore"
MOST_BYTES, MOST_PATTERNS = 100_000, 1_000  # of a .fishermixignore: each is compiled, and asked for each file
MOST_PATTERNS_IN_ALL = 5_000  # of a folder and those below it
# The time of a match is a power of the length of the path, and each wildcard adds to the exponent.
MOST_WILDCARDS, MOST_DOUBLE_STARS = 4, 2
LIVE_PHOTO = ".mov"  # the video that a phone keeps next to a photo of the same name
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


@dataclass(frozen=True)
class Stamp:
    """What a directory listing shows of a file: enough to see that it has not changed."""

    size: int
    mtime_ns: int


def read_stamp(status: os.stat_result) -> Stamp:
    """The stamp of a file. A time after the year 2262 has more bits than a database stores: it is wrapped."""
    return Stamp(status.st_size, (status.st_mtime_ns + 2**63) % 2**64 - 2**63)


# Patterns


class IgnoreRules(NamedTuple):
    """The patterns of one .fishermixignore, for paths below `base`, which is empty or ends in a slash.

    folders : the patterns as they apply to folders: a slash at the end of one has no meaning there
    """

    base: str
    files: GitIgnoreSpec
    folders: GitIgnoreSpec

    def decide(self, path: str) -> bool | None:
        """Whether a path is left out; None if no pattern matches. That of a folder ends in a slash."""
        inside = path[len(self.base) :] if path.startswith(self.base) else ""
        if not inside:
            return None
        patterns = self.folders if inside.endswith("/") else self.files
        return patterns.check_file(inside.rstrip("/")).include


def parse_patterns(lines: Sequence[str], base: str, where: str | os.PathLike) -> IgnoreRules:
    """The patterns of the .fishermixignore `where` in the folder `base`."""
    from pathspec import GitIgnoreSpec  # most folders have no patterns

    for number, line in enumerate(lines, 1):
        try:
            GitIgnoreSpec.from_lines([line])
            if _has_many_wildcards(line):
                raise ValueError("it has too many wildcards")
        except (ValueError, re.error) as error:
            raise FishermixError(
                f"{where}, line {number}: {line.strip()!r} is not a pattern ({error}). Correct it.",
                code="wrong_ignore_file",
            ) from error
    of_folders = [line.rstrip() if line.rstrip().endswith("/") else "" for line in lines]
    return IgnoreRules(
        base,
        GitIgnoreSpec.from_lines("" if only else line for line, only in zip(lines, of_folders)),
        GitIgnoreSpec.from_lines(only[:-1] or line for line, only in zip(lines, of_folders)),
    )


def _has_many_wildcards(pattern: str) -> bool:
    """Whether a pattern has more than two `**`, or more than four stars in a name; or too many of both."""
    names = pattern.strip("!/ ").split("/")
    double = sum(name == "**" and before != "**" for before, name in zip(["", *names], names))
    further = sum(max(0, name.count("*") - 1) for name in names if name != "**")
    return double / MOST_DOUBLE_STARS + further / (MOST_WILDCARDS - 1) > 1


def read_ignore_file(folder: Path, base: str) -> list[IgnoreRules]:
    """The patterns of the .fishermixignore of a folder; none if there is none. One that cannot be read is an
    error: what it leaves out must not be encoded.
    """
    path = folder / IGNORE_FILE
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FishermixError(
                f"{path} is not a file. Remove it, or write patterns into a file of this name.",
                code="wrong_ignore_file",
            )
        with open(path, encoding="utf8", errors="surrogateescape") as file:
            text = file.read(MOST_BYTES + 1)
        lines = text.splitlines()
        if len(text) > MOST_BYTES or len(lines) > MOST_PATTERNS:
            raise FishermixError(
                f"{path} has more than {MOST_PATTERNS:,} lines or {MOST_BYTES:,} letters. Shorten it: "
                "a pattern may leave out a whole folder.",
                code="wrong_ignore_file",
            )
        return [parse_patterns(lines, base, path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FishermixError(
            f"{path} cannot be read ({error.strerror}). Correct its permissions.", code="wrong_ignore_file"
        ) from error


def is_ignored(path: str, rules: Sequence[IgnoreRules]) -> bool:
    """Whether patterns leave out a path; those of the innermost folder that match decide."""
    decisions = (rule.decide(path) for rule in reversed(rules))
    return next((decision for decision in decisions if decision is not None), False)


def is_skipped_below(root: Path, folder: Path) -> bool:
    """Whether a listing of `root` leaves out `folder`, which lies in it, or a folder between them."""
    names = folder.relative_to(root).parts
    if any(name.startswith(".") or name.lower() in FOLDERS_OF_PROGRAMS for name in names):
        return True
    rules = read_ignore_files_above(root, folder)
    return any(is_ignored(f"{'/'.join(names[:depth])}/", rules) for depth in range(1, len(names) + 1))


def read_ignore_files_above(root: Path, folder: Path) -> list[IgnoreRules]:
    """The patterns of the folders from `root` down to the one that contains `folder`; paths are relative to
    `root`.
    """
    names = folder.relative_to(root).parts
    rules: list[IgnoreRules] = []
    for depth in range(len(names)):
        above = "".join(f"{name}/" for name in names[:depth])
        rules += read_ignore_file(root / above, above)
    return rules


def add_slash(folder: str | os.PathLike) -> str:
    """The beginning of the paths of all files below a folder."""
    return f"{os.fspath(folder).rstrip('/')}/"


def resolve(folder: str | os.PathLike) -> Path:
    """The absolute path of a folder, without links."""
    return Path(folder).expanduser().resolve()


def find_covering(folder: Path, folders: Iterable[str]) -> Path | None:
    """The innermost of `folders` that is `folder`, or contains it and does not leave it out."""
    for path in (folder, *folder.parents):
        if str(path) in folders and (path == folder or not is_skipped_below(path, folder)):
            return path
    return None


def find_inner(folder: Path, folders: Iterable[str]) -> list[str]:
    """Those of `folders` whose photos a listing of `folder` shows."""
    return [path for path in folders if is_covered(Path(path), folder)]


def is_covered(inner: Path, outer: Path) -> bool:
    """Whether a listing of `outer` shows what is in `inner`, a folder inside it."""
    return inner != outer and inner.is_relative_to(outer) and not is_skipped_below(outer, inner)


# Listing


@dataclass
class Listing:
    """What a folder contains.

    photos : stamps by path relative to the folder, with '/' between the names
    unreadable : why subfolders could not be read, by relative path ending in '/'
    skipped : the number of files, by suffix, that look like photos and are not read
    left_out : the number of files and folders that are left out, by the reason
    """

    photos: dict[str, Stamp] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)

    def explain_left_out(self) -> tuple[str, ...]:
        """A sentence about what was left out; none if nothing was."""
        if not self.left_out:
            return ()
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.left_out.items()))
        return (f"Left out: {reasons}.",)


def scan_folder(folder: Path, root: Path | None = None) -> Listing:
    """List all photos below `folder`.

    Everything that is listed is inside the folder: symbolic links are left out. A RAW photo next to a
    processed photo of the same name is not listed: both are one photo. The same holds for the video of a Live
    Photo.

    root : the folder above that the library has; what its .fishermixignore names is left out, too
    """
    above = "" if root in (None, folder) else f"{folder.relative_to(root or folder).as_posix()}/"
    rules = read_ignore_files_above(root, folder) if root is not None and above else []
    walk = _Walk()
    found = sorted(walk.list_photos(folder, above, rules))
    listing = walk.listing
    listing.photos = {path.removeprefix(above): stamp for path, stamp in found}
    listing.unreadable = {path.removeprefix(above): why for path, why in listing.unreadable.items()}
    if "" in listing.unreadable:
        raise FishermixError(f"{folder} {listing.unreadable['']}.", code="wrong_folder")
    return listing


class _Walk:
    """One walk through a folder."""

    def __init__(self) -> None:
        self.rules: list[IgnoreRules] = []  # of the folder that is being listed, and of those above it
        self.listing = Listing()
        self.n_patterns = 0

    def list_photos(self, folder: Path, prefix: str, rules: list[IgnoreRules]) -> Iterator[tuple[str, Stamp]]:
        """Paths and stamps of the photos below a folder, whose own path is `prefix`, with the rules above it.

        A stack instead of recursion: folders may be nested deeper than Python's calls.
        """
        stack = [(os.fspath(folder), prefix, rules)]
        while stack:
            place, prefix, self.rules = stack.pop()
            try:
                entries = list(os.scandir(place))
            except OSError as error:
                self.listing.unreadable[prefix] = f"cannot be read ({error.strerror})"
                continue
            if any(entry.name == IGNORE_FILE for entry in entries):
                self._add_rules(Path(place), prefix)
            pictures: list[tuple[os.DirEntry[str], Format]] = []
            formats = [find_format(entry.name) for entry in entries]
            for entry, format in zip(entries, formats):
                try:
                    if entry.is_symlink() or self._is_left_out(entry, format, prefix):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        stack.append((entry.path, f"{prefix}{entry.name}/", self.rules))
                    elif format is not None and entry.is_file(follow_symlinks=False):
                        pictures.append((entry, format))
                except OSError:
                    continue  # deleted since the listing
            yield from self._choose(pictures, prefix)

    def _add_rules(self, folder: Path, prefix: str) -> None:
        """Add the rules of the folder that is being listed, unless there were too many before."""
        rules = read_ignore_file(folder, prefix)
        self.rules = [*self.rules, *rules]
        self.n_patterns += sum(len(rule.files) for rule in rules)
        if self.n_patterns > MOST_PATTERNS_IN_ALL:
            raise FishermixError(
                f"{folder / IGNORE_FILE} and those of other folders have more than {MOST_PATTERNS_IN_ALL:,} "
                "lines. Shorten them: a pattern may leave out a whole folder.",
                code="wrong_ignore_file",
            )

    def _choose(
        self, pictures: Sequence[tuple[os.DirEntry[str], Format]], prefix: str
    ) -> Iterator[tuple[str, Stamp]]:
        """The pictures of one folder that can be read, without the doubles of a camera."""
        installed = {format for format in {format for _, format in pictures} if format.is_installed}
        processed = {
            os.path.splitext(entry.name.lower())[0]
            for entry, format in pictures
            if format in installed and format is not RAW and format is not VIDEO
        }
        for entry, format in pictures:
            stem, suffix = os.path.splitext(entry.name.lower())
            if (format is RAW or suffix == LIVE_PHOTO) and stem in processed:
                continue
            if format not in installed:
                self.listing.skipped[suffix] += 1
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            yield f"{prefix}{entry.name}", read_stamp(status)

    def _is_left_out(self, entry: os.DirEntry[str], format: Format | None, prefix: str) -> bool:
        """Whether a file or folder is left out; counts it if it is a folder or looks like a photo."""
        is_folder = entry.is_dir(follow_symlinks=False)
        if not is_folder and format is None:
            return entry.name.startswith(".")
        path = f"{prefix}{entry.name}/" if is_folder else f"{prefix}{entry.name}"
        if entry.name.startswith("."):
            reason = "hidden"
        elif is_folder and entry.name.lower() in FOLDERS_OF_PROGRAMS:
            reason = entry.name
        elif self.rules and is_ignored(path, self.rules):
            reason = f"by {IGNORE_FILE}"
        else:
            return False
        self.listing.left_out[reason] += 1
        return True
