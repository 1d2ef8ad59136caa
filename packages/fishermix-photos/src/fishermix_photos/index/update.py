"""An update of the library: list a folder, then encode, recognize or remove only what changed."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from fishermix.errors import FishermixError
from fishermix.progress import Bar, progress

from fishermix_photos.disk import explain_os_error
from fishermix_photos.index.changes import Changes
from fishermix_photos.index.duplicates import take_fingerprint
from fishermix_photos.index.errors import FolderAway, LibraryBusy
from fishermix_photos.index.scan import (
    Listing,
    Stamp,
    add_slash,
    find_covering,
    find_inner,
    is_covered,
    read_stamp,
    resolve,
    scan_folder,
)
from fishermix_photos.index.values import Entry, State
from fishermix_photos.photos.details import Details, read_details
from fishermix_photos.photos.formats import (
    UnreadableImage,
    count_photos,
    find_format,
    is_whole_file,
    list_formats,
    may_hold_several,
    split_place,
)

if TYPE_CHECKING:
    from fishermix_photos.index.protocol import PhotoIndex
    from fishermix_photos.model.model import ImageTextModel

T = TypeVar("T")
Check = Callable[[Collection[str]], None]
EncodedPicture = tuple[str, np.ndarray | FishermixError, bytes | None]  # path, features, fingerprint
# An update commits after each batch: a crash loses the work of at most this many photos.
PHOTOS_PER_COMMIT = 64
# Files are hashed and passed to the encoder in chunks: its threads run idle once per chunk.
FILES_PER_CHUNK = 1024
OTHER_MODEL = "The library was made with another model. All photos are encoded again."


class HashedPicture(NamedTuple):
    """The file of a photo, frame or page, what a listing shows of it, and the hash of the content."""

    file: str
    stamp: Stamp
    sha256: bytes

    def is_unchanged(self) -> bool:
        """Whether the file is still as it was listed."""
        try:
            return read_stamp(os.stat(self.file)) == self.stamp
        except OSError:
            return False


@dataclass
class Plan:
    """What has to be done: files that are new or changed, and paths that are gone or out of date."""

    todo: dict[str, Stamp] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    old_parts: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.todo or self.gone or self.old_parts)


def run_updates(
    index: PhotoIndex,
    model: ImageTextModel,
    folders: Sequence[str | os.PathLike],
    check: Check | None = None,
) -> Changes:
    """Update folders, which are added if they are new.

    check : is called with the names of the photos of a new folder, in lower case, before they are encoded
    """
    wanted = list(dict.fromkeys(resolve(folder) for folder in folders))
    state = index.state()
    problems = dict[Path, FishermixError]()
    for folder in wanted:
        if not folder.is_dir() and not add_slash(folder).startswith(tuple(map(add_slash, state.folders))):
            problem = "is not a folder" if folder.exists() else "does not exist"
            problems[folder] = FishermixError(
                f"{folder} {problem}. Name the folder that contains your photos.",
                code="wrong_folder",
            )
    if problems and len(problems) == len(wanted):
        raise next(iter(problems.values()))
    wanted = [folder for folder in wanted if folder not in problems]
    if state.model_key not in ("", model.key):  # the embeddings of all folders are lost: encode them again
        wanted += filter(Path.is_dir, map(Path, state.folders))
    if len(wanted) > 1:
        given = dict.fromkeys(wanted)  # without those that the update of another one covers
        wanted = [one for one in given if not any(is_covered(one, other) for other in given)]
    total = Changes()
    is_updated = False
    for folder in wanted:
        try:
            changes = FolderUpdate(folder=folder, index=index, model=model, state=state).run(check)
        except (FolderAway, LibraryBusy) as error:
            problems[folder] = error
            continue
        total, is_updated = _add_changes(total, changes), True
        if len(wanted) > 1:
            state = index.state()
    if problems and not is_updated:
        raise next(iter(problems.values()))
    return replace(total, problems=problems)


def _add_changes(one: Changes, other: Changes) -> Changes:
    return Changes(
        encoded=one.encoded + other.encoded,
        recognized=one.recognized + other.recognized,
        removed=one.removed + other.removed,
        unreadable={**one.unreadable, **other.unreadable},
        skipped=dict(Counter(one.skipped) + Counter(other.skipped)),
        remarks=(*one.remarks, *other.remarks),
    )


class FolderUpdate:
    """One update of a folder, which may be inside a folder of the library."""

    def __init__(self, folder: Path, index: PhotoIndex, model: ImageTextModel, state: State):
        self.folder, self.index, self.model, self.state = folder, index, model, state
        self._expect_folder()
        self.status = os.stat(folder)
        self.prefix = add_slash(folder)
        self.root = find_covering(folder, state.folders) or folder
        # A folder takes over those inside it that a listing shows.
        self.inner = find_inner(folder, state.folders)
        self.is_new = str(self.root) not in state.folders
        self.listing = scan_folder(folder, self.root)
        self.encoded = 0
        self.recognized = 0
        self.unreadable = dict[str, str]()

    def run(self, check: Check | None = None) -> Changes:
        """Encode new and changed photos, recognize moved ones by their content, remove deleted ones."""
        listing = self.listing
        is_known = not self.is_new and not self.inner
        is_current = is_known and self.state.model_key == self.model.key
        unreadable = {self.prefix + path: reason for path, reason in listing.unreadable.items()}
        if is_current and not self._plan(listing):
            return Changes(unreadable=unreadable)
        if self.is_new and not listing.photos and not listing.unreadable:
            remarks = f"There are no photos in {self.folder}.", *listing.explain_left_out()
            return Changes(skipped=dict(listing.skipped), remarks=remarks)
        if self.is_new and check is not None:
            check({path.rpartition("/")[2].lower() for path in listing.photos})
        with self.index.updating([str(self.root), *self.inner]):
            was_dropped = self.index.adopt(self.model.key, self.model.csls_dimension)
            self.index.add_folder(str(self.root), self.inner)
            self.index.compact()
            # Again: another process may have updated the folder meanwhile.
            self._expect_folder()
            self.state = self.index.state()
            listing = scan_folder(self.folder, self.root)
            plan = self._plan(listing)
            try:
                self._write(plan)
            except OSError as error:
                raise FishermixError(
                    f"The library {self.index.name} could not be written. {explain_os_error(error)}",
                    code="cannot_write",
                ) from error
        return Changes(
            encoded=self.encoded,
            recognized=self.recognized,
            removed=len({split_place(path).file for path in plan.gone}),
            unreadable=unreadable | self.unreadable,
            skipped=dict(listing.skipped),
            remarks=(OTHER_MODEL, *listing.explain_left_out()) if was_dropped else listing.explain_left_out(),
        )

    def _expect_folder(self) -> None:
        if self.folder.is_file():
            raise FishermixError(
                f"{self.folder} is a file, not a folder. Name the folder that contains your photos.",
                code="wrong_folder",
            )
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

    def _expect_same_folder(self) -> None:
        """Raise if the folder was renamed or unmounted since its listing: what is missing is not deleted."""
        self._expect_folder()
        if not os.path.samestat(os.stat(self.folder), self.status):
            raise FolderAway(
                f"{self.folder} has become another folder meanwhile. Is the disk mounted? Its photos stay in "
                "the library.",
                folder=self.folder,
            )

    def _plan(self, listing: Listing) -> Plan:
        """Compare what the folder contains with what the library has of it."""
        known = self.index.stamps(self.prefix)
        present = {self.prefix + path: stamp for path, stamp in listing.photos.items()}
        if present == known:
            return Plan()
        unreadable = tuple(self.prefix + path for path in listing.unreadable)
        files = self._find_files(known)
        if files and not present and not unreadable:
            raise FolderAway(
                f"The library has {count_photos(_count_files(files))} of {self.folder}, "
                "but there are none now. Is the disk mounted? If you deleted them, remove the folder from "
                "the library.",
                folder=self.folder,
            )
        todo = {path: stamp for path, stamp in present.items() if _has_changed(known.get(path), stamp)}
        gone = [
            path for path, file in files.items() if file not in present and not path.startswith(unreadable)
        ]
        # A file that changed may have other frames or pages than before.
        return Plan(todo, gone, [path for path, file in files.items() if path != file and file in todo])

    def _find_files(self, known: Iterable[str]) -> dict[str, str]:
        """The file of each known path that this update may remove: no other folder has it."""
        others = tuple(
            add_slash(path)
            for path in self.state.folders
            if path.startswith(self.prefix) and path not in (str(self.root), *self.inner)
        )
        return {path: split_place(path).file for path in known if not path.startswith(others)}

    def _write(self, plan: Plan) -> None:
        if plan.old_parts:
            self.index.write(str(self.root), [], plan.old_parts)
        if plan.todo:
            with progress("reading files", total=len(plan.todo)) as bar:
                for chunk in _split_chunks(iter(plan.todo.items()), FILES_PER_CHUNK):
                    self._add(dict(chunk), bar)
        self._expect_same_folder()
        if plan.gone:
            self.index.write(str(self.root), [], plan.gone)
        if plan:
            self.index.tune()

    def _add(self, stamps: dict[str, Stamp], bar: Bar) -> None:
        """Add files: those whose content is known without encoding it."""
        hashed, failed = _hash_files(stamps)
        fresh = self._recognize(hashed, failed)
        bar.advance(len(stamps) - len({picture.file for picture in fresh.values()}))
        for batch in _split_chunks(self._encode(fresh), PHOTOS_PER_COMMIT):
            entries = self._make_entries(batch, fresh)
            self.index.write(str(self.root), entries)
            self.unreadable |= {entry.path: entry.reason for entry in entries if entry.reason is not None}
            self.encoded += _count_files(entry.path for entry in entries if entry.reason is None)
            bar.advance(_count_files(path for path, *_ in batch))

    def _recognize(self, hashed: dict[str, HashedPicture], failed: list[Entry]) -> dict[str, HashedPicture]:
        """Store the files whose contents are known, and those that cannot be opened; returns the others."""
        known = self.index.known_contents([picture.sha256 for picture in hashed.values()])
        fresh = {picture.file for picture in hashed.values() if picture.sha256 not in known}
        recognized = [
            Entry(path, picture.stamp, picture.sha256, details=self._read_details(picture.file))
            for path, picture in hashed.items()
            if picture.file not in fresh and picture.is_unchanged()
        ]
        missing = self.index.write(str(self.root), [*recognized, *failed])
        fresh |= {hashed[path].file for path in missing}
        stored = [entry.path for entry in recognized if hashed[entry.path].file not in fresh]
        self.recognized += _count_files(stored)
        self.unreadable |= {entry.path: entry.reason or "" for entry in failed}
        return {path: picture for path, picture in hashed.items() if picture.file in fresh}

    def _read_details(self, file: str) -> Details:
        """What a photo says of itself, with the name of its place."""
        details = read_details(file, self.root)
        if details.latitude is None or details.longitude is None:
            return details
        from fishermix_photos.index.gazetteer import open_gazetteer  # takes a second

        found = open_gazetteer().find(details.latitude, details.longitude)
        return replace(details, place=found.name, region=found.region) if found else details

    def _encode(self, pictures: dict[str, HashedPicture]) -> Iterator[EncodedPicture]:
        """What the encoder makes of each path; each content is encoded once."""
        fingerprints: dict[str, bytes | None] = {}

        def on_open(path: str, image: Any) -> None:
            if not may_hold_several(pictures[path].file):
                fingerprints[path] = take_fingerprint(image)

        same: dict[tuple, list[str]] = {}
        for path, picture in pictures.items():
            same.setdefault((picture.sha256, find_format(picture.file)), []).append(path)
        groups = list(same.values())
        if not groups:
            return
        for position, result in self.model.image_encoder.stream([group[0] for group in groups], on_open):
            first, *others = groups[position]
            fingerprint = fingerprints.pop(first, None)
            yield first, result, fingerprint
            if others and pictures[first].is_unchanged():  # else what was encoded is another content
                for path in others:
                    yield path, result, fingerprint

    def _make_entries(self, batch: list[EncodedPicture], pictures: dict[str, HashedPicture]) -> list[Entry]:
        """What to store of encoded pictures. A file that changed meanwhile is left to the next update."""
        files = {pictures[path].file: pictures[path] for path, *_ in batch}
        unchanged = {file for file, picture in files.items() if picture.is_unchanged()}
        batch = [encoded for encoded in batch if pictures[encoded[0]].file in unchanged]
        features = [result for _, result, _ in batch if isinstance(result, np.ndarray)]
        space = self.model.joint_space
        vectors = iter(space.csls_left(space.embed_left(np.stack(features))) if features else ())
        entries = []
        for path, result, fingerprint in batch:
            file, stamp, sha256 = pictures[path]
            if isinstance(result, np.ndarray):
                details = self._read_details(file)
                entries.append(
                    Entry(
                        path=path,
                        stamp=stamp,
                        sha256=sha256,
                        vector=next(vectors),
                        reason=None,
                        details=details,
                        fingerprint=fingerprint,
                    )
                )
            else:
                stamp = _mark_failure(stamp) if getattr(result, "may_change", False) else stamp
                entries.append(Entry(path, stamp, reason=getattr(result, "reason", str(result))))
        return entries


def _hash_files(stamps: dict[str, Stamp]) -> tuple[dict[str, HashedPicture], list[Entry]]:
    """The hash of the content of each frame, page and file, and the files that cannot be opened or are too
    large.
    """
    from fishermix_photos.photos.open import check_photo_size, open_regular

    hashed: dict[str, HashedPicture] = {}
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
            of_part = hashlib.sha256(digest + part.encode()).digest() if part else digest
            hashed[path] = HashedPicture(file, stamp, of_part)
    return hashed, failed


def _list_parts(file: str) -> list[str]:
    """The frames and pages of a file, itself last: a file counts as up to date as soon as it is written."""
    if not may_hold_several(file):
        return [file]
    from fishermix_photos.photos.open import list_photos  # opens decoders

    return list_photos(file)[::-1]


def _mark_failure(stamp: Stamp) -> Stamp:
    """The stamp of a file that cannot be read with the pixel limit and the packages of now. It matches no
    file, and differs with another limit or another package: then the next update tries again.
    """
    from fishermix_photos.photos.open import default_max_pixels

    circumstances = f"{default_max_pixels()} {list_formats()}"
    return Stamp(-1 - stamp.size, stamp.mtime_ns ^ zlib.crc32(circumstances.encode()))


def _has_changed(old: Stamp | None, stamp: Stamp) -> bool:
    """Whether a file is new, has changed, or may be readable now."""
    if old is None or old.size != -1 - stamp.size:
        return old != stamp
    return old != _mark_failure(stamp)


def _count_files(paths: Iterable[str]) -> int:
    """The number of files among paths of photos, frames and pages."""
    return sum(is_whole_file(path) for path in paths)


def _split_chunks(items: Iterator[T], size: int) -> Iterator[list[T]]:
    while chunk := list(islice(items, size)):
        yield chunk
