"""Folders of `config.json` and one safetensors file, written whole or not at all; loading runs no code.

`config.json` names the tensor file, which has the hash of its content in its name, and the folders inside
that belong to it (`parts`). A save writes new files next to the old ones, replaces `config.json` in one step,
and removes what `config.json` does not name any more: a crash at any moment leaves the old state or the new
one, and the next save clears up what the crash left. Nothing is ever removed but files with the names that a
save gives. Of two saves at once, the second waits for the first. A load during a save gives the old state or
the new one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from msgspec import Struct as Struct
from msgspec import field as field
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from fishermix.errors import FishermixError

if TYPE_CHECKING:
    from filelock import BaseFileLock

T = TypeVar("T")

# The types of every JSON file of fishermix: numbers are finite, names and texts have a longest length.
Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
Positive = Annotated[float, Meta(ge=0, le=1e300)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Size = Annotated[int, Meta(ge=1, le=10**9)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Text = Annotated[str, Meta(max_length=4096)]
# A file or folder next to the file that names it.
PlainName = Annotated[str, Meta(pattern=r"\A(?!\.{1,2}\Z)[A-Za-z0-9._ -]{1,120}\Z")]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Scalar = bool | Seed | Number | Text | None
_Flat = _Scalar | list[_Scalar] | dict[Name, _Scalar]
# What users add themselves: plain values, nested at most three deep.
Json = _Scalar | list[_Flat] | dict[Name, _Flat]


FORMAT = "fishermix"
CONFIG = "config.json"
DAMAGED = "The file is damaged."
LARGEST_JSON = 64 * 2**20  # bytes; the vocabulary of a captioner takes 1 MB
LOCK = "work.lock"  # held while a folder is written
SECONDS_BETWEEN_TRIES = 0.01
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)  # some network drives
NAME_DIGITS = 12  # of the hash, in the name of a file
SCRATCH, TENSORS = ".saving-", "tensors"  # a folder in which a save writes, and the file in it
_OWN_FILE = r"tensors-[0-9a-f]{12}\.safetensors|\.config\.json\.[0-9a-f]{8}\.tmp"
_BINARY = getattr(os, "O_BINARY", 0)  # Windows
DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "i1", "I64": "<i8", "U8": "u1", "U64": "<u8"}


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


def write_atomically(path: str | os.PathLike, data: bytes, private: bool = False) -> None:
    """Replace the file `path` by `data` in one step. Only its owner can read a private file."""
    path = Path(path)
    temporary = path.parent / f".{path.name}.{os.urandom(4).hex()}.tmp"
    # The system applies the umask: asking for it would change it for other threads.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600 if private else 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if private:
            os.chmod(temporary, 0o600)  # a umask of 777 would leave nothing
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can: a rename then survives a power loss."""
    with suppress(OSError):  # Windows, some network drives
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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
        digest = _write_tensors(scratch, tensors)
        head: dict[str, Any] = {
            "format": FORMAT,
            "kind": kind.name,
            "version": kind.version,
            "tensors": f"tensors-{digest[:NAME_DIGITS]}.safetensors",
            "sha256": digest,
            "parts": {name: f"{name}-{digest[:NAME_DIGITS]}" for name in parts},
        }
        os.replace(scratch / TENSORS, folder / head["tensors"])
        for name, write in parts.items():
            write(folder / head["parts"][name])
        sync_folder(folder)
        text = json.dumps({**head, **fields}, indent=1, allow_nan=False) + "\n"
        write_atomically(folder / CONFIG, text.encode())
    finally:
        _clear(folder, names)


def _write_tensors(scratch: Path, tensors: Mapping[str, np.ndarray]) -> str:
    """Write a safetensors file, flushed to disk; returns its SHA-256.

    The package writes to a file of its own name first, so it gets a folder of its own.
    """
    scratch.mkdir()
    mode = scratch.stat().st_mode & 0o666  # that of a new file
    os.chmod(scratch, 0o700)  # whatever the umask
    path = scratch / TENSORS
    try:
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path)
    except SafetensorError as error:
        if found := re.search(r"os error (\d+)", str(error)):  # a full disk, for example
            number = int(found[1])
            raise OSError(number, os.strerror(number), os.fspath(path)) from error
        raise
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    digest = sha256_of_file(path)
    os.chmod(path, mode)
    return digest


def _read_head(folder: Path) -> dict[str, Any] | None:
    """`config.json` of a saved folder, or None if it is not one."""
    try:
        head = json.loads((folder / CONFIG).read_text("utf8"))
    except (OSError, ValueError, RecursionError):
        return None
    return head if isinstance(head, dict) and head.get("format") == FORMAT else None


def _read_names(folder: Path) -> Head | None:
    """What `config.json` names; nothing if there is none, None if it is damaged."""
    try:
        return msgspec.convert(_read_head(folder) or {}, Head)
    except msgspec.ValidationError:
        return None


def _match_own(parts: Iterable[str]) -> re.Pattern[str]:
    """The names that saves give to files, and to the folders of these parts."""
    folders = "|".join([re.escape(SCRATCH), *(re.escape(f"{part}-") for part in parts)])
    return re.compile(rf"{_OWN_FILE}|(?:{folders})[0-9a-f]{{12,16}}")


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
        raise FishermixError(f"Cannot read the folder {folder} ({error.strerror}).") from error
    raise FishermixError(f"{folder} is not empty and holds no {kind}. Name a new or empty folder.")


def make_folder(folder: Path) -> None:
    """Create a folder, unless it exists, and those above it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise FishermixError(f"{folder} is a file. Name a folder.") from error
    except (OSError, ValueError) as error:  # a ValueError: no file can have such a name
        reason = getattr(error, "strerror", None) or error
        raise FishermixError(f"Cannot create the folder {str(folder)!r} ({reason}).") from error


def is_vacant(folder: Path, kind: FolderKind) -> bool:
    """Whether nothing was saved here so far: no folder, an empty one, or a first save that was killed."""
    if not folder.exists():
        return True
    own = _match_own(kind.parts or ())
    return folder.is_dir() and all(name == LOCK or own.fullmatch(name) for name in os.listdir(folder))


def sha256_of_file(path: str | os.PathLike) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_values(*values: Any) -> str:
    """The SHA-256 of JSON values and of arrays, which may also be in lists and dictionaries."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=_describe_array).encode()).hexdigest()


def _describe_array(array: Any) -> list[Any]:
    data = np.ascontiguousarray(array)
    return [data.dtype.str, data.shape, hashlib.sha256(data.tobytes()).hexdigest()]


def check_download(path: Path, sha256: str) -> None:
    """Check a downloaded file before anything opens it; a wrong one is deleted."""
    found = sha256_of_file(path)
    if found != sha256:
        path.unlink()
        raise FishermixError(
            f"The downloaded file {path.name} has the SHA-256 {found}, not {sha256}. It was deleted. Run the "
            "command again; if the message persists, the file on the server has changed: do not use it."
        )


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
        raise FishermixError(f"{path} is missing: the folder is incomplete, copy it again")
    if verified and sha256_of_file(path) != head.sha256:
        raise FishermixError(f"{path} is damaged: its content does not match the hash in {CONFIG}")
    if mapped:
        tensors = _map_tensors(path)
    else:
        with explain_damage(path):
            tensors = load_file(path)
    require_tensors(tensors, kind.tensors or {}, folder)
    parts = {}
    for name, part in (kind.parts or {}).items():
        if name in head.parts and (folder / head.parts[name]).is_dir():
            parts[name] = _load_once(folder / head.parts[name], part, mapped, verified)
    return SavedFolder(folder, config, tensors, parts)


def _load_config(folder: Path, kind: FolderKind) -> tuple[Head, Any]:
    """The checked `config.json` of a folder of this kind: its head, and the fields of the kind's schema."""
    path = folder / CONFIG
    if not os.path.isfile(path):  # False for names that no file can have
        raise FishermixError(f"{folder} holds no {CONFIG} and so no saved {kind}")
    fields: Any = parse_json(path.read_bytes(), object, path)
    if not isinstance(fields, dict) or fields.get("format") != FORMAT or fields.get("kind") != kind.name:
        found = str(fields.get("kind"))[:100] if isinstance(fields, dict) else "something else"
        raise FishermixError(f"{folder} holds no {kind}: its {CONFIG} is of {found}")
    version = fields.get("version")
    if not isinstance(version, int) or version > kind.version:
        raise FishermixError(
            f"{folder} was written by a newer fishermix (version {str(version)[:100]} of {kind}; "
            f"this one reads up to {kind.version}): upgrade fishermix"
        )
    head = parse(fields, Head, path)
    if head.tensors is None or head.sha256 is None:
        raise FishermixError(f"'tensors' is missing or invalid in {path}: the file is damaged.")
    return head, parse(fields, kind.schema, path)


def _map_tensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file as memory maps; the library itself would copy them into memory."""
    with explain_damage(path):
        with safe_open(path, framework="numpy"):  # checks the header, its offsets and the file's size
            pass
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        dtypes = {name: DTYPES[entry["dtype"]] for name, entry in header.items()}
    tensors = {}
    for name, dtype in dtypes.items():
        shape, offset = tuple(header[name]["shape"]), 8 + size + header[name]["data_offsets"][0]
        is_empty = 0 in shape  # which no map can be
        mapped = None if is_empty else np.memmap(path, dtype, "r", offset=offset, shape=shape)
        tensors[name] = np.zeros(shape, dtype) if mapped is None else mapped
    return tensors


@contextmanager
def explain_damage(path: str | os.PathLike, advice: str = DAMAGED) -> Iterator[None]:
    """Whatever another package raises while it parses the file at `path` becomes one error.

    A parser of a damaged file raises classes that its documentation does not list, so all are caught here,
    and only here. Put nothing but the call of the parser into the block.
    """
    try:
        yield
    except FishermixError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise FishermixError(f"{path} cannot be read ({reason}). {advice}") from error


def require_tensor(
    tensors: Mapping[str, np.ndarray],
    name: str,
    shape: tuple[int | None, ...],
    where: str | os.PathLike,
    kinds: str = "f",
) -> np.ndarray:
    """`tensors[name]` if it has this shape (None matches any length), a type of `kinds` and finite values."""
    if name not in tensors:
        raise FishermixError(f"{where} lacks the tensor '{name}'")
    value = tensors[name]
    if value.ndim != len(shape) or any(want not in (None, have) for want, have in zip(shape, value.shape)):
        raise FishermixError(f"{where}: tensor '{name}' has shape {value.shape}, expected {shape}")
    if value.dtype.kind not in kinds:
        raise FishermixError(f"{where}: tensor '{name}' holds {value.dtype} numbers")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise FishermixError(f"{where}: tensor '{name}' holds NaN or infinity")
    return value


def require_tensors(
    tensors: Mapping[str, np.ndarray], shapes: Mapping[str, str], where: str | os.PathLike
) -> list[np.ndarray]:
    """The tensors that `shapes` names, checked as by `require_tensor`.

    A shape such as "k d" has a name or a number for each length. The same name is the same length in all
    tensors. The first word "int" is for integers: "int k d".
    """
    lengths: dict[str, int] = {}
    found = []
    for name, shape in shapes.items():
        kinds = "iu" if shape.startswith("int ") else "f"
        words = shape.removeprefix("int ").split()
        wanted = tuple([int(word) if word.isdecimal() else lengths.get(word) for word in words])
        found.append(require_tensor(tensors, name, wanted, where, kinds))
        lengths.update(zip(words, found[-1].shape))
    return found


def list_feature_names(estimator: Any) -> list[str] | None:
    """The names of the columns that an estimator was fitted to, or None."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def check_feature_names(
    names: list[str] | None, n_features: int, where: str | os.PathLike
) -> list[str] | None:
    """`feature_names_in` of a saved estimator, if there is one name per column; None if absent."""
    if names is not None and len(names) != n_features:
        raise FishermixError(f"'feature_names_in' in {where} must be a list of {n_features} names.")
    return names


# Values of a schema


def parse_json(data: bytes, schema: type[T], where: str | os.PathLike, advice: str = DAMAGED) -> T:
    """The value of this schema that a file's bytes contain; an error names the file and the field."""
    if len(data) > LARGEST_JSON:
        raise FishermixError(f"{where} has {len(data):,} bytes, more than any such file. {advice}")
    try:
        return msgspec.json.decode(data, type=schema)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _explain(error, where, advice) from error


def parse(value: Any, schema: type[T], where: str | os.PathLike) -> T:
    """The same for a value of plain JSON types that was read before."""
    try:
        return msgspec.convert(value, schema)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _explain(error, where, DAMAGED) from error


def dump(value: Any) -> Any:
    """A value of a schema as plain JSON types, checked as if it were read."""
    plain = msgspec.to_builtins(value, enc_hook=lambda number: number.item())  # NumPy's numbers
    try:
        msgspec.convert(plain, type(value))
    except msgspec.ValidationError as error:
        raise FishermixError(f"A {type(value).__name__} cannot be saved: {error}.") from error
    return plain


def _explain(error: Exception, where: str | os.PathLike, advice: str) -> FishermixError:
    if isinstance(error, RecursionError):
        return FishermixError(f"{where} is nested too deeply. {advice}")
    reason, _, place = str(error).partition(" - at `")
    reason = reason[:200]
    if not isinstance(error, msgspec.ValidationError):
        return FishermixError(f"{where} is not valid JSON ({reason}). {advice}")
    path = place.rstrip("`").removeprefix("key in `").removeprefix("$").removeprefix(".")
    if missing := re.search(r"required field `([^`]*)`", reason):
        path = f"{path}.{missing[1]}".removeprefix(".")
    if not path:
        return FishermixError(f"{where} is invalid ({reason}). {advice}")
    return FishermixError(f"'{path}' is missing or invalid in {where} ({reason}). {advice}")


# Locks: two processes that write the same files would mix them. The system locks an empty file for a process.
# The lock ends with the process, also with one that is killed, and whoever holds it last removes the file.


@contextmanager
def hold_folder(folder: str | os.PathLike, option: str | None = None) -> Iterator[Path]:
    """Hold a folder, which is created if it does not exist; a thread that holds it may hold it again.

    Whoever finds it held waits; or, if the `option` that names another folder is given, gets an error. A file
    system without locks is an error with an option only: a save takes a moment, work takes hours.
    """
    folder = Path(folder)
    while True:
        make_folder(folder)
        try:
            lock = _acquire(folder / LOCK, option)
            break
        except FileNotFoundError:  # another process has removed the folder meanwhile
            if folder.is_dir():
                raise
    try:
        yield folder
    finally:
        if lock is not None:
            _release(lock, folder / LOCK)


def _acquire(path: Path, option: str | None) -> BaseFileLock | None:
    from filelock import FileLock, Timeout  # a search does not save

    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise FishermixError(f"Cannot lock {path.parent}: {path} is not a file. Move it away.")
    lock = FileLock(path, is_singleton=True, poll_interval=SECONDS_BETWEEN_TRIES)
    try:
        lock.acquire(timeout=-1 if option is None else 0)
    except Timeout as error:
        raise FishermixError(
            f"Another fishermix is working in {path.parent}. Wait until it has finished, or name another "
            f"folder with {option}."
        ) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        if option is None and error.errno in NO_LOCKS:
            return None
        raise FishermixError(
            f"Cannot lock {path.parent} ({error.strerror}). If {path} is not yours or cannot be written, "
            "remove it."
        ) from error
    return lock


def _release(lock: BaseFileLock, path: Path) -> None:
    """Release a lock; whoever held it once removes its file, unless someone has written into it."""
    if lock.lock_counter == 1:
        with suppress(OSError):  # Windows keeps a file that is locked
            if path.stat().st_size == 0:
                path.unlink()
    lock.release()
