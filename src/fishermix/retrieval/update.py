"""An update of an index: it lists the folder, and encodes, recognizes or removes only what changed."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fishermix.disk import explain_os_error
from fishermix.errors import FishermixError
from fishermix.progress import Bar, progress
from fishermix.retrieval.ignore import is_excluded, parse_patterns
from fishermix.retrieval.photo_files import scan_folder
from fishermix.retrieval.store import Entry, Stamp, Store
from fishermix.vision.formats import may_have_parts, split_part

if TYPE_CHECKING:
    from fishermix.retrieval.index import Model
    from fishermix.retrieval.library import OtherIndexes

T = TypeVar("T")
# An update commits after each batch: a crash loses the work of at most this many photos.
BATCH = 64
# Files are hashed and passed to the encoder in chunks: its threads run idle once per chunk.
CHUNK = 1024


@dataclass
class Changes:
    """What an update did.

    encoded, recognised, removed : numbers of photos: new ones, moved or copied ones that were recognized by
        their content, deleted ones
    unreadable : reasons by path
    skipped : the number of files, by suffix, that look like photos and are not read
    another_model : whether the index was made with another model, so that all photos were encoded again
    left_out : sentences about files and folders that are left out: hidden ones and those of other programs
    found_nothing : whether neither the folder nor the index has photos
    """

    encoded: int = 0
    recognised: int = 0
    removed: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
    another_model: bool = False
    skipped: dict[str, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    found_nothing: bool = False

    def __bool__(self) -> bool:
        return bool(self.encoded or self.recognised or self.removed or self.unreadable)


class IndexUpdate:
    """One update of the index of a folder.

    exclude : globs of photos that are neither encoded nor removed
    index_option : how a command names the index, if it is not in the default place
    """

    def __init__(self, folder: Path, model: Model, store: Store, exclude: Sequence[str], index_option: str):
        self.folder, self.model, self.store = folder, model, store
        self.exclude, self.index_option = exclude, index_option

    def run(self) -> Changes:
        """Encode new and changed photos, recognize moved ones by their content, remove deleted ones."""
        dimension, key = self.model.match_dimension, self.model.key
        if (place := self.folder.resolve()) != self.folder:
            raise FishermixError(
                f"{self.folder} has been replaced by a link to {place}, which is not followed. "
                "Start again to use it."
            )
        with self.store.writing():
            changes = Changes(another_model=self.store.adopt(key, dimension))
            self.store.remember_folder(self.folder)
            listing = scan_folder(self.folder, self.exclude, self.store.root)
            changes.left_out, changes.skipped = listing.explain_left_out(), dict(listing.skipped)
            known = self.store.stamps()
            changes.found_nothing = not (known or listing.photos or listing.unreadable)
            files = {path: split_part(path)[0] for path in known}
            if self.exclude:
                patterns = parse_patterns(self.exclude)
                files = {path: file for path, file in files.items() if not is_excluded(file, patterns)}
                known = {path: known[path] for path in files}
            present, unreadable = listing.photos, listing.unreadable
            if known and not present and not unreadable:
                raise FishermixError(
                    f"The index has {_count_files(known):,} photos, but {self.folder} has none. "
                    "Is the disk mounted? "
                    f"If you deleted the photos, {self._explain_forgetting()}."
                )
            todo = {
                path: stamp
                for path, stamp in present.items()
                if (old := known.get(path)) != stamp and not (old and _failed_alike(old, stamp))
            }
            gone = [
                path
                for path, file in files.items()
                if file not in present and not path.startswith(tuple(unreadable))
            ]
            changes.removed = len({files[path] for path in gone})
            changes.unreadable = unreadable
            # A file that changed may have other parts than before.
            old_parts = [path for path, file in files.items() if path != file and file in todo]
            if old_parts:
                self.store.write([], removed=old_parts)
            if todo or gone:
                self._write(todo, gone, changes)
            self._read_details()
            return changes

    def _explain_forgetting(self) -> str:
        """How to have the index forget all photos of the folder."""
        if (root := self.store.root) is not None:
            command = f"fishermix index update {shlex.quote(str(root))}"
            return f"update the index of the whole folder with `{command}`"
        name = shlex.quote(str(self.folder))
        return f"delete the index with `fishermix index remove {name}{self.index_option}`"

    def _read_details(self) -> None:
        """Read what photos say of themselves; for an index of an older version, that of all photos."""
        if not (missing := self.store.paths_without_details()):
            return
        from fishermix.retrieval.read_details import read_details

        with progress("reading dates and places", total=len(missing)) as bar:
            for paths in _chunks(iter(missing), CHUNK):
                self.store.write_details({path: read_details(self.folder, path) for path in paths})
                bar.advance(len(paths))

    def _write(self, todo: dict[str, Stamp], gone: list[str], changes: Changes) -> None:
        from fishermix.retrieval.library import OtherIndexes

        others = OtherIndexes(self.store.name, self.model.key)
        try:
            if todo:
                with progress("indexing photos", total=len(todo)) as bar:
                    for chunk in _chunks(iter(todo.items()), CHUNK):
                        self._index(dict(chunk), changes, bar, others)
            if gone:
                self.store.write([], removed=gone)
        except OSError as error:
            raise FishermixError(
                f"The index {self.store.name} could not be written. {explain_os_error(error)}"
            ) from error
        finally:
            others.close()
        self.store.tune()

    def _index(self, chunk: dict[str, Stamp], changes: Changes, bar: Bar, others: OtherIndexes) -> None:
        failed: list[Entry] = []
        hashed: dict[str, bytes] = {}  # of each part of each file
        for path in chunk:
            try:
                with open(self.folder / path, "rb") as opened:
                    digest = hashlib.file_digest(opened, "sha256").digest()
            except OSError as error:
                # The stamp matches no file, so that the next update tries again.
                failed.append(Entry(path, Stamp(0, 0), reason=f"cannot be opened ({error.strerror})"))
                continue
            hashed |= {part: _hash_part(digest, part) for part in self._list_parts(path)}
        known = self.store.known_contents(list(hashed.values()))
        elsewhere = others.find_vectors([digest for digest in hashed.values() if digest not in known])
        known |= elsewhere.keys()
        fresh_files = {split_part(part)[0] for part, digest in hashed.items() if digest not in known}
        fresh = [part for part in hashed if split_part(part)[0] in fresh_files]
        recognised = [
            Entry(part, chunk[file], digest, elsewhere.get(digest))
            for part, digest in hashed.items()
            if (file := split_part(part)[0]) not in fresh_files
        ]
        self.store.write(recognised + failed)
        changes.recognised += _count_files(entry.path for entry in recognised)
        changes.unreadable |= {entry.path: entry.reason or "" for entry in failed}
        bar.advance(_count_files(entry.path for entry in recognised + failed))
        for batch in _chunks(self._encode(fresh), BATCH):
            entries = self._make_entries(batch, chunk, hashed)
            self.store.write(entries)
            changes.unreadable |= {entry.path: entry.reason for entry in entries if entry.reason is not None}
            changes.encoded += _count_files(entry.path for entry in entries if entry.reason is None)
            bar.advance(_count_files(path for path, _ in batch))

    def _list_parts(self, path: str) -> list[str]:
        """The parts of a file, itself last: the index takes a file for up to date when it is written."""
        if not may_have_parts(path):
            return [path]
        from fishermix.vision.images import list_parts

        name = str(self.folder / path)
        return [path + part.removeprefix(name) for part in reversed(list_parts(name))]

    def _encode(self, paths: list[str]) -> Iterator[tuple[str, np.ndarray | FishermixError]]:
        if not paths:
            return
        for position, result in self.model.image_encoder.stream([self.folder / path for path in paths]):
            yield paths[position], result

    def _make_entries(
        self,
        batch: list[tuple[str, np.ndarray | FishermixError]],
        chunk: dict[str, Stamp],
        hashed: dict[str, bytes],
    ) -> list[Entry]:
        stamps = {path: chunk[split_part(path)[0]] for path, _ in batch}
        readable = [(path, result) for path, result in batch if isinstance(result, np.ndarray)]
        entries = []
        if readable:
            points = self.model.image_points(np.stack([vector for _, vector in readable]))
            for (path, _), vector in zip(readable, self.model.match_images(points)):
                entries.append(Entry(path, stamps[path], hashed[path], vector))
        # The next update encodes a file that changed while it was read. It tries again what a higher limit or
        # another package may read as soon as there is one.
        entries = [entry for entry in entries if self._is_unchanged(entry.path, entry.stamp)]
        for path, result in batch:
            if not isinstance(result, np.ndarray) and self._is_unchanged(path, stamps[path]):
                stamp = stamps[path]
                if getattr(result, "may_change", False):
                    stamp = _mark_failure(stamp)
                entries.append(Entry(path, stamp, reason=getattr(result, "reason", str(result))))
        return entries

    def _is_unchanged(self, path: str, stamp: Stamp) -> bool:
        try:
            status = (self.folder / split_part(path)[0]).stat()
        except OSError:
            return False
        return Stamp(status.st_size, status.st_mtime_ns) == stamp


def _mark_failure(stamp: Stamp) -> Stamp:
    """The stamp of a file that cannot be read with the pixel limit and the packages of now. It matches no
    file, and differs with another limit or another package.
    """
    import zlib

    from fishermix.vision.formats import list_formats
    from fishermix.vision.pixel_limit import default_max_pixels

    circumstances = f"{default_max_pixels()} {list_formats()}"
    return Stamp(-1 - stamp.size, stamp.mtime_ns ^ zlib.crc32(circumstances.encode()))


def _failed_alike(old: Stamp, stamp: Stamp) -> bool:
    return old.size == -1 - stamp.size and old == _mark_failure(stamp)


def _hash_part(digest: bytes, path: str) -> bytes:
    """The hash of a part's content: that of the file, and which part it is."""
    file = split_part(path)[0]
    return digest if path == file else hashlib.sha256(digest + path.removeprefix(file).encode()).digest()


def _count_files(paths: Iterable[str]) -> int:
    """The number of files among paths of photos, frames and pages: each file counts once, by its own path."""
    return sum(split_part(path)[0] == path for path in paths)


def _chunks(items: Iterator[T], size: int) -> Iterator[list[T]]:
    while chunk := list(islice(items, size)):
        yield chunk
