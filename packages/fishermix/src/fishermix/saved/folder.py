"""Folders of `config.json` and one safetensors file, written whole or not at all; loading runs no code.

`config.json` names the tensor file, which has the hash of its content in its name, and the folders inside
that belong to it (`parts`). A save writes new files next to the old ones, replaces `config.json` in one step,
and removes what `config.json` does not name any more: a crash at any moment leaves the old state or the new
one, and the next save clears up what the crash left. Nothing is ever removed but files with the names that a
save gives. Of two saves at once, the second waits for the first. A load during a save gives the old state or
the new one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fishermix.errors import FishermixError
from fishermix.saved.files import make_folder, sync_folder, write_atomically
from fishermix.saved.hashing import sha256_of_file
from fishermix.saved.locks import LOCK, hold_folder
from fishermix.saved.schema import Digest, PlainName, Struct, dump, field, load_json, parse
from fishermix.saved.tensors import check_tensors, load_tensors, require_tensors, write_tensors

FORMAT = "fishermix"
CONFIG = "config.json"
NAME_DIGITS = 12  # of the hash, in the name of a file
SCRATCH = ".saving-"  # a folder in which a save writes


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder: its name and version in `config.json`, and the schema of the other fields.

    tensors : the shapes of tensors, see `require_tensors`, that a load checks
    parts : the kinds of the folders inside that are loaded with it, by their names in `Head.parts`
    """

    name: str
    version: int
    schema: type[Any]
    tensors: Mapping[str, str] | None = None
    parts: Mapping[str, FolderKind] | None = None

    def __str__(self) -> str:
        return self.name


class Head(Struct, kw_only=True):
    """What every `config.json` says of its folder."""

    tensors: PlainName | None = None
    sha256: Digest | None = None
    parts: dict[PlainName, PlainName] = field(default_factory=dict)


@dataclass(frozen=True)
class SavedFolder:
    """The checked content of a folder: the value of its schema, its tensors, and the parts that are there."""

    folder: Path
    config: Any
    tensors: dict[str, np.ndarray]
    parts: dict[str, SavedFolder]


def save_folder(
    folder: str | os.PathLike,
    kind: FolderKind,
    config: Any,
    tensors: Mapping[str, np.ndarray],
    parts: Mapping[str, Callable[[Path], None]] | None = None,
) -> None:
    """Write `config` (a value of the kind's schema) and `tensors` as a folder of this `kind`.

    An existing folder is replaced only if it holds the same kind; anything else in it stays untouched. Each
    of `parts` is called with the path of a folder to write, which `Head.parts` names.
    """
    fields = dump(config)
    with hold_folder(make_place(folder, kind)) as held:
        make_place(held, kind)  # another save may have come first
        _save_held(held, kind, fields, tensors, parts or {})


def _save_held(
    folder: Path,
    kind: FolderKind,
    fields: dict[str, Any],
    tensors: Mapping[str, np.ndarray],
    parts: Mapping[str, Callable[[Path], None]],
) -> None:
    names = {*parts, *(kind.parts or ()), *(_read_names(folder) or Head()).parts}
    _clear(folder, names)
    scratch = folder / f"{SCRATCH}{os.urandom(8).hex()}"
    try:
        digest = _write_scratch(scratch, tensors)
        head: dict[str, Any] = {
            "format": FORMAT,
            "kind": kind.name,
            "version": kind.version,
            "tensors": f"tensors-{digest[:NAME_DIGITS]}.safetensors",
            "sha256": digest,
            "parts": {name: f"{name}-{digest[:NAME_DIGITS]}" for name in parts},
        }
        os.replace(scratch / "tensors", folder / head["tensors"])
        for name, write in parts.items():
            write(folder / head["parts"][name])
        sync_folder(folder)
        text = json.dumps({**head, **fields}, indent=1, allow_nan=False) + "\n"
        write_atomically(folder / CONFIG, text.encode())
    finally:
        _clear(folder, names)


def _write_scratch(scratch: Path, tensors: Mapping[str, np.ndarray]) -> str:
    """Write the tensor file into a folder of its own; returns its SHA-256.

    The package safetensors writes to a file of a name of its own first.
    """
    scratch.mkdir()
    mode = scratch.stat().st_mode & 0o666  # that of a new file
    os.chmod(scratch, 0o700)  # whatever the umask
    path = scratch / "tensors"
    write_tensors(path, tensors)
    digest = sha256_of_file(path)
    os.chmod(path, mode)
    return digest


def _read_head(folder: Path) -> dict[str, Any] | None:
    """`config.json` of a saved folder, or None if it is not one."""
    try:
        head = load_json(folder / CONFIG, dict[str, Any])
    except (OSError, ValueError):
        return None
    return head if head.get("format") == FORMAT else None


def _read_names(folder: Path) -> Head | None:
    """What `config.json` names; nothing if there is none, None if it is damaged."""
    try:
        return msgspec.convert(_read_head(folder) or {}, Head)
    except msgspec.ValidationError:
        return None


def _match_own(parts: Iterable[str]) -> re.Pattern[str]:
    """The names that saves give to files, and to the folders of these parts."""
    files = r"tensors-[0-9a-f]{12}\.safetensors|\.config\.json\.[0-9a-f]{8}\.tmp"
    folders = "|".join([re.escape(SCRATCH), *(re.escape(f"{part}-") for part in parts)])
    return re.compile(rf"{files}|(?:{folders})[0-9a-f]{{12,16}}")


def _list_own(folder: Path, parts: Iterable[str]) -> list[Path]:
    """What saves wrote into a folder."""
    own = _match_own(parts)
    return [path for path in folder.iterdir() if own.fullmatch(path.name) and not path.is_symlink()]


def _clear(folder: Path, parts: Iterable[str]) -> None:
    """Remove what saves wrote and `config.json` does not name: of the save before, or of a killed one."""
    head = _read_names(folder)
    if head is None:
        return
    for path in _list_own(folder, parts):
        if path.name not in (head.tensors, *head.parts.values()):
            with suppress(OSError):  # Windows keeps files that are open; the next save tries again
                remove_saved(path) if path.is_dir() else path.unlink()


def remove_saved(folder: Path) -> None:
    """Remove what saves wrote into a folder, and the folder if nothing else is in it."""
    if folder.is_symlink() or not folder.is_dir():
        return
    own = [folder / CONFIG, folder / LOCK] if _read_head(folder) else []
    is_scratch = folder.name.startswith(SCRATCH)
    head = _read_names(folder) or Head()
    own += folder.iterdir() if is_scratch else _list_own(folder, head.parts)
    for path in own:
        remove_saved(path) if path.is_dir() else path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def make_place(folder: str | os.PathLike, kind: FolderKind) -> Path:
    """Create the folder if it does not exist, and check that something of this kind can be saved in it."""
    folder = Path(folder)
    make_folder(folder)
    try:
        if is_vacant(folder, kind) or (_read_head(folder) or {}).get("kind") == kind.name:
            return folder
    except OSError as error:
        raise FishermixError(
            f"Cannot read the folder {folder} ({error.strerror}).", code="wrong_folder"
        ) from error
    raise FishermixError(
        f"{folder} is not empty and holds no {kind}. Name a new or empty folder.", code="wrong_folder"
    )


def is_vacant(folder: Path, kind: FolderKind) -> bool:
    """Whether nothing was saved here so far: no folder, an empty one, or a first save that was killed."""
    if not folder.exists():
        return True
    own = _match_own(kind.parts or ())
    return folder.is_dir() and all(name == LOCK or own.fullmatch(name) for name in os.listdir(folder))


def read_kind(folder: Path) -> str | None:
    """The kind of a saved folder, or None."""
    return (_read_head(folder) or {}).get("kind")


def load_folder(
    folder: str | os.PathLike, kind: FolderKind, *, mapped: bool = False, verified: bool = True
) -> SavedFolder:
    """Read and check a saved folder and its parts.

    mapped : map the tensors into memory instead of reading them
    verified : compare the hash of the tensors, for which they are read in full

    It is read again if it was saved meanwhile: a save removes files that the `config.json` before it named.
    """
    while True:
        before = _stamp(folder)
        try:
            return _load_once(Path(folder), kind, mapped, verified)
        except (FishermixError, FileNotFoundError):
            if _stamp(folder) == before:
                raise


def _stamp(folder: str | os.PathLike) -> tuple[int, ...] | None:
    """Differs after each save."""
    try:
        status = os.stat(Path(folder) / CONFIG)
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _load_once(folder: Path, kind: FolderKind, mapped: bool, verified: bool) -> SavedFolder:
    head, config = _load_config(folder, kind)
    path = folder / str(head.tensors)
    if not path.is_file():
        raise FishermixError(f"{path} is missing: the folder is incomplete, copy it again", code="damaged")
    check_tensors(path, fits_in_memory=not mapped)
    if verified and sha256_of_file(path) != head.sha256:
        raise FishermixError(
            f"{path} is damaged: its content does not match the hash in {CONFIG}", code="damaged"
        )
    tensors = load_tensors(path, mapped)
    require_tensors(tensors, kind.tensors or {}, folder)
    parts = {}
    for name, part in (kind.parts or {}).items():
        if name in head.parts and (folder / head.parts[name]).is_dir():
            parts[name] = _load_once(folder / head.parts[name], part, mapped, verified)
    return SavedFolder(folder=folder, config=config, tensors=tensors, parts=parts)


def _load_config(folder: Path, kind: FolderKind) -> tuple[Head, Any]:
    """The checked `config.json` of a folder of this kind: its head, and the fields of the kind's schema."""
    path = folder / CONFIG
    if not os.path.isfile(path):  # False for names that no file can have
        raise FishermixError(f"{folder} holds no {CONFIG} and so no saved {kind}", code="not_found")
    fields: Any = load_json(path, object)
    if not isinstance(fields, dict) or fields.get("format") != FORMAT or fields.get("kind") != kind.name:
        found = str(fields.get("kind"))[:100] if isinstance(fields, dict) else "something else"
        raise FishermixError(f"{folder} holds no {kind}: its {CONFIG} is of {found}", code="not_found")
    version = fields.get("version")
    if not isinstance(version, int) or version > kind.version:
        raise FishermixError(
            f"{folder} was written by a newer fishermix (version {str(version)[:100]} of {kind}; "
            f"this one reads up to {kind.version}): upgrade fishermix",
            code="newer_version",
        )
    head = parse(fields, Head, path)
    if head.tensors is None or head.sha256 is None:
        raise FishermixError(
            f"'tensors' is missing or invalid in {path}: the file is damaged.", code="damaged"
        )
    return head, parse(fields, kind.schema, path)
