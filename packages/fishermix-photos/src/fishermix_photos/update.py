"""An update of the library: list a folder, then encode, recognize or remove only what changed."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from fishermix.errors import FishermixError
from fishermix.progress import Bar, progress

from fishermix_photos.database import Entry
from fishermix_photos.details import Details, read_details
from fishermix_photos.disk import explain_os_error, open_regular
from fishermix_photos.duplicates import take_fingerprint
from fishermix_photos.photo_files import (
    Listing,
    Stamp,
    add_slash,
    find_covered,
    find_covering,
    is_inside_ignored,
    parse_patterns,
    read_stamp,
    scan_folder,
)
from fishermix_photos.results import Changes, FolderAway
from fishermix_photos.vision.formats import (
    UnreadableImage,
    find_format,
    is_whole_file,
    list_formats,
    may_hold_several,
    split_place,
)

if TYPE_CHECKING:
    from fishermix_photos.model import ImageTextModel
    from fishermix_photos.postgres import PostgresStore
    from fishermix_photos.store import LocalStore

T = TypeVar("T")
Encoded = tuple[str, np.ndarray | FishermixError, bytes | None]  # path, vector or error, fingerprint
# An update commits after each batch: a crash loses the work of at most this many photos.
BATCH = 64
# Files are hashed and passed to the encoder in chunks: its threads run idle once per chunk.
CHUNK = 1024


@dataclass
class Plan:
    """What has to be done: files that are new or changed, and paths that are gone or out of date."""

    todo: dict[str, Stamp]
    gone: list[str]
    old_parts: list[str]

    def __bool__(self) -> bool:
        return bool(self.todo or self.gone or self.old_parts)


@dataclass
class Tally:
    """What has been done so far."""

    encoded: int = 0
    recognized: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)


class FolderUpdate:
    """One update of a folder, which may be inside a folder of the library.

    exclude : globs of photos that are neither encoded nor removed
    """

    def __init__(
        self,
        folder: Path,
        store: LocalStore | PostgresStore,
        model: ImageTextModel,
        exclude: Sequence[str] = (),
    ):
        self.folder, self.store, self.model, self.exclude = folder, store, model, exclude
        self.state = store.state()
        known = self.state.folders
        self.prefix = add_slash(folder)
        self.root = find_covering(folder, known) or folder
        self.is_new = str(self.root) not in known
        # A folder takes over those inside it that a listing shows.
        self.inner = find_covered(known, folder, exclude)

    def run(self) -> Changes:
        """Encode new and changed photos, recognize moved ones by their content, remove deleted ones."""
        listing = self._list()
        made_with = self.state.model_key, self.state.dimension
        is_current = made_with == (self.model.key, self.model.csls_dimension)
        if is_current and not self.is_new and not self.inner and not self._plan(listing):
            return self._report(listing, Tally(), 0)
        if self.is_new and not listing.photos and not listing.unreadable:
            return self._report(listing, Tally(), 0, f"There are no photos in {self.folder}.")
        with self.store.updating([str(self.root), *self.inner]):
            remarks = []
            if self.store.adopt(self.model.key, self.model.csls_dimension):
                remarks.append("The library was made with another model. All photos are encoded again.")
            self.store.add_folder(str(self.root), self.inner)
            self.store.tidy()
            # Again: another process may have updated the folder meanwhile.
            self.state, listing = self.store.state(), self._list()
            plan, tally = self._plan(listing), Tally()
            try:
                self._write(plan, tally)
                self._expect_folder()  # renamed or unmounted meanwhile: nothing could be read
            except OSError as error:
                raise FishermixError(
                    f"The library {self.store.name} could not be written. {explain_os_error(error)}"
                ) from error
        removed = len({split_place(path).file for path in plan.gone})
        return self._report(listing, tally, removed, *remarks)

    def _expect_folder(self) -> None:
        if not self.folder.is_dir():
            raise FolderAway(
                f"{self.folder} does not exist. Is the disk mounted? Its photos stay in the library.",
                folder=self.folder,
            )
        if (place := self.folder.resolve()) != self.folder:
            raise FolderAway(
                f"{self.folder} has been replaced by a link to {place}, which is not followed.",
                folder=self.folder,
            )

    def _list(self) -> Listing:
        self._expect_folder()
        return scan_folder(self.folder, self.exclude, self.root)

    def _report(self, listing: Listing, tally: Tally, removed: int, *remarks: str) -> Changes:
        unreadable = {self.prefix + path: reason for path, reason in listing.unreadable.items()}
        return Changes(
            tally.encoded,
            tally.recognized,
            removed,
            unreadable | tally.unreadable,
            dict(listing.skipped),
            (*remarks, *listing.explain_left_out()),
            skipped_as_before=self._skips_as_before(listing),
        )

    def _skips_as_before(self, listing: Listing) -> bool:
        """Whether what is skipped was reported before; what is not is remembered."""
        known = self.store.skipped(str(self.root))
        if self.folder != self.root or self.exclude:  # a part of the folder
            return all(count <= known.get(suffix, 0) for suffix, count in listing.skipped.items())
        if known == dict(listing.skipped):
            return True
        with suppress(FishermixError):  # a library that cannot be written: reported again next time
            self.store.set_skipped(str(self.root), listing.skipped)
        return not listing.skipped

    def _plan(self, listing: Listing) -> Plan:
        """Compare what the folder contains with what the library has of it."""
        present = {self.prefix + path: stamp for path, stamp in listing.photos.items()}
        unreadable = tuple(self.prefix + path for path in listing.unreadable)
        known = self.store.stamps(self.prefix)
        files = self._find_files(known)
        if files and not present and not unreadable:
            raise FolderAway(
                f"The library has {_count_files(files):,} photos of {self.folder}, but there are none now. "
                "Is the disk mounted? If you deleted them, remove the folder from the library.",
                folder=self.folder,
            )
        todo = {
            path: stamp
            for path, stamp in present.items()
            if (old := known.get(path)) != stamp and not (old and _failed_alike(old, stamp))
        }
        gone = [
            path for path, file in files.items() if file not in present and not path.startswith(unreadable)
        ]
        # A file that changed may have other frames or pages than before.
        return Plan(todo, gone, [path for path, file in files.items() if path != file and file in todo])

    def _find_files(self, known: Iterable[str]) -> dict[str, str]:
        """The file of each known path that this update may remove: no other folder has it, and no exclude."""
        others = tuple(
            add_slash(path)
            for path in self.state.folders
            if path.startswith(self.prefix) and path not in (str(self.root), *self.inner)
        )
        files = {path: split_place(path).file for path in known if not path.startswith(others)}
        if not self.exclude:
            return files
        rules = [parse_patterns(self.exclude)]
        return {
            path: file
            for path, file in files.items()
            if not is_inside_ignored(file[len(self.prefix) :], rules)
        }

    def _write(self, plan: Plan, tally: Tally) -> None:
        if plan.old_parts:
            self.store.write(str(self.root), [], plan.old_parts)
        if plan.todo:
            with progress("reading files", total=len(plan.todo)) as bar:
                for chunk in _split_chunks(iter(plan.todo.items()), CHUNK):
                    self._add(dict(chunk), tally, bar)
        if plan.gone:
            self.store.write(str(self.root), [], plan.gone)
        if plan:
            self.store.tune()

    def _add(self, stamps: dict[str, Stamp], tally: Tally, bar: Bar) -> None:
        """Add files: those whose content is known without encoding it."""
        hashes, failed = _hash_files(stamps)
        known = self.store.known_contents(list(hashes.values()))
        fresh_files = {split_place(path).file for path, digest in hashes.items() if digest not in known}
        recognized = [
            Entry(path, stamps[file], digest, details=self._read_details(file))
            for path, digest in hashes.items()
            if (file := split_place(path).file) not in fresh_files and _is_unchanged(file, stamps[file])
        ]
        missing = self.store.write(str(self.root), [*recognized, *failed])
        fresh_files |= {split_place(path).file for path in missing}
        tally.recognized += _count_files(
            entry.path for entry in recognized if split_place(entry.path).file not in fresh_files
        )
        tally.unreadable |= {entry.path: entry.reason or "" for entry in failed}
        bar.advance(len(stamps) - len(fresh_files))
        fresh = [path for path in hashes if split_place(path).file in fresh_files]
        for batch in _split_chunks(self._encode(fresh, stamps, hashes), BATCH):
            entries = self._make_entries(batch, stamps, hashes)
            self.store.write(str(self.root), entries)
            tally.unreadable |= {entry.path: entry.reason for entry in entries if entry.reason is not None}
            tally.encoded += _count_files(entry.path for entry in entries if entry.reason is None)
            bar.advance(_count_files(path for path, *_ in batch))

    def _read_details(self, file: str) -> Details:
        """What a photo says of itself, with the name of its place."""
        details = read_details(file, self.root)
        if details.latitude is None or details.longitude is None:
            return details
        from fishermix_photos.places import open_gazetteer  # takes a second

        found = open_gazetteer().find(details.latitude, details.longitude)
        return replace(details, place=found.name, region=found.region) if found else details

    def _encode(
        self, paths: list[str], stamps: dict[str, Stamp], hashes: dict[str, bytes]
    ) -> Iterator[Encoded]:
        """The result of each path; each content is encoded once."""
        fingerprints: dict[str, bytes | None] = {}

        def on_open(path: str, image: Any) -> None:
            if not may_hold_several(split_place(path).file):
                fingerprints[path] = take_fingerprint(image)

        same: dict[tuple, list[str]] = {}
        for path in paths:
            same.setdefault((hashes[path], find_format(split_place(path).file)), []).append(path)
        groups = list(same.values())
        if groups:
            firsts = [group[0] for group in groups]
            for position, result in self.model.image_encoder.stream(firsts, on_open):
                first, *others = groups[position]
                fingerprint = fingerprints.pop(first, None)
                yield first, result, fingerprint
                file = split_place(first).file
                if others and _is_unchanged(file, stamps[file]):  # else what was encoded is another content
                    yield from ((path, result, fingerprint) for path in others)

    def _make_entries(
        self,
        batch: list[Encoded],
        stamps: dict[str, Stamp],
        hashes: dict[str, bytes],
    ) -> list[Entry]:
        """What to store of encoded pictures. A file that changed meanwhile is left to the next update."""
        files = {path: split_place(path).file for path, *_ in batch}
        unchanged = {file for file in set(files.values()) if _is_unchanged(file, stamps[file])}
        batch = [encoded for encoded in batch if files[encoded[0]] in unchanged]
        features = [result for _, result, _ in batch if isinstance(result, np.ndarray)]
        readable = [encoded for encoded in batch if isinstance(encoded[1], np.ndarray)]
        entries = []
        if readable:
            points = self.model.joint_space.image_points(np.stack(features))
            for (path, _, fingerprint), vector in zip(readable, self.model.joint_space.csls_images(points)):
                details, stamp = self._read_details(files[path]), stamps[files[path]]
                entries.append(Entry(path, stamp, hashes[path], vector, None, details, fingerprint))
        for path, result, _ in batch:
            if not isinstance(result, np.ndarray):
                stamp = stamps[files[path]]
                if getattr(result, "may_change", False):
                    stamp = _mark_failure(stamp)
                entries.append(Entry(path, stamp, reason=getattr(result, "reason", str(result))))
        return entries


def _hash_files(stamps: dict[str, Stamp]) -> tuple[dict[str, bytes], list[Entry]]:
    """The hash of the content of each frame, page and file, and the files that cannot be opened or are too
    large.
    """
    from fishermix_photos.vision.limits import check_photo_size

    hashes: dict[str, bytes] = {}
    failed: list[Entry] = []
    for file, stamp in stamps.items():
        try:
            with open_regular(file) as opened:
                check_photo_size(file, os.fstat(opened.fileno()).st_size)
                digest = hashlib.file_digest(opened, "sha256").digest()
        except FileNotFoundError:
            continue  # deleted since the listing
        except OSError as error:
            # The stamp matches no file, so that the next update tries again.
            failed.append(Entry(file, Stamp(0, 0), reason=f"cannot be opened ({error.strerror})"))
            continue
        except UnreadableImage as error:
            failed.append(Entry(file, _mark_failure(stamp), reason=error.reason))
            continue
        for path in _list_parts(file):
            part = path.removeprefix(file)
            hashes[path] = hashlib.sha256(digest + part.encode()).digest() if part else digest
    return hashes, failed


def _list_parts(file: str) -> list[str]:
    """The frames and pages of a file, itself last: a file counts as up to date as soon as it is written."""
    if not may_hold_several(file):
        return [file]
    from fishermix_photos.vision.open import list_photos  # opens decoders

    return list_photos(file)[::-1]


def _is_unchanged(file: str, stamp: Stamp) -> bool:
    try:
        status = os.stat(file)
    except OSError:
        return False
    return read_stamp(status) == stamp


def _mark_failure(stamp: Stamp) -> Stamp:
    """The stamp of a file that cannot be read with the pixel limit and the packages of now. It matches no
    file, and differs with another limit or another package: then the next update tries again.
    """
    from fishermix_photos.vision.limits import default_max_pixels

    circumstances = f"{default_max_pixels()} {list_formats()}"
    return Stamp(-1 - stamp.size, stamp.mtime_ns ^ zlib.crc32(circumstances.encode()))


def _failed_alike(old: Stamp, stamp: Stamp) -> bool:
    return old.size == -1 - stamp.size and old == _mark_failure(stamp)


def _count_files(paths: Iterable[str]) -> int:
    """The number of files among paths of photos, frames and pages."""
    return sum(is_whole_file(path) for path in paths)


def _split_chunks(items: Iterator[T], size: int) -> Iterator[list[T]]:
    while chunk := list(islice(items, size)):
        yield chunk
