"""The index of a photo folder: an update looks only at what changed, then sentences and photos search it."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from fishermix.disk import explain_os_error
from fishermix.errors import FishermixError
from fishermix.progress import Bar, progress
from fishermix.retrieval.details import Filter
from fishermix.retrieval.ignore import is_excluded, parse_patterns
from fishermix.retrieval.photo_files import default_index, replace_undecodable, scan_folder
from fishermix.retrieval.query import Query, combine_filters, encode_terms, parse_query
from fishermix.retrieval.store import Entry, Hit, Stamp, Store
from fishermix.retrieval.threshold import estimate_threshold
from fishermix.vision.formats import find_format, split_part

if TYPE_CHECKING:
    from fishermix.caption.consensus import Description
    from fishermix.model.calibration import Calibration, Judge
    from fishermix.retrieval.library import OtherIndexes

T = TypeVar("T")
MOST_THUMBNAILS, THUMBNAIL_SIDE = 24, 160  # of hits in a notebook
LIKELY, MAYBE = 0.5, 0.2  # the probabilities from which on a photo is likely right, or may be
# An update commits after each batch: a crash loses the work of at most this many photos.
BATCH = 64
# Files are hashed and passed to the encoder in chunks: its threads run idle once per chunk.
CHUNK = 1024
SCORES_FOR_THRESHOLD = 20_000  # a sample of them is enough for the two quantiles of a threshold


class Model(Protocol):
    """The part of `fishermix.ImageTextModel` that an index and the server use."""

    @property
    def image_encoder(self) -> Any: ...
    @property
    def sentence_encoder(self) -> Any: ...
    @property
    def cca(self) -> Any: ...
    @property
    def captioner(self) -> Any: ...
    @property
    def calibration(self) -> Calibration | None: ...
    @property
    def key(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    @property
    def match_dimension(self) -> int: ...
    def encode_query(self, sentence: str) -> tuple[np.ndarray, list[str]]: ...
    def suggest_spelling(self, word: str) -> str | None: ...
    def encode_text(self, sentences: Sequence[str]) -> np.ndarray: ...
    def encode_images(self, images: Sequence[Any]) -> np.ndarray: ...
    def image_points(self, features: np.ndarray) -> np.ndarray: ...
    def match_images(self, points: np.ndarray) -> np.ndarray: ...
    def match_sentences(self, points: np.ndarray) -> np.ndarray: ...
    def describe_points(self, points: np.ndarray) -> list[Description]: ...


@dataclass
class Changes:
    """What an update did.

    encoded, recognised, removed : numbers of photos: new ones, moved or copied ones that were recognized by
        their content, deleted ones
    unreadable : reasons by path
    skipped : the number of files, by suffix, that look like photos and are not read
    another_model : whether the index was made with another model, so that all photos were encoded again
    left_out : sentences about files and folders that are left out: hidden ones and those of other programs
    """

    encoded: int = 0
    recognised: int = 0
    removed: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
    another_model: bool = False
    skipped: dict[str, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.encoded or self.recognised or self.removed or self.unreadable)


def resolve_folder(folder: str | os.PathLike) -> Path:
    """The absolute path of an existing folder."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise FishermixError(f"{folder} is not a folder. Name the folder that contains your photos.")
    return path.resolve()


def open_store(
    folder: Path,
    index: str | os.PathLike | None = None,
    must_exist: bool = False,
    model_key: str | None = None,
) -> Store:
    """Open the store of a folder: in `index` (a directory or a postgresql:// address), or else in the default
    place. A folder without its own index that lies in an indexed one is opened there.

    model_key : the index of a folder above is used only if it is one of this model
    """
    if _is_address(index):
        from fishermix.retrieval.postgres_store import PostgresStore

        return PostgresStore(str(index))
    from fishermix.retrieval.sqlite_store import LocalStore

    place = Path(index).expanduser() if index is not None else default_index(folder)
    if not os.path.isfile(place / "index.sqlite"):
        if index is None and (store := _open_above(folder, model_key)) is not None:
            return store
        if must_exist:
            raise FishermixError(_explain_no_index(folder, index, place))
    if place.is_dir() and any(place.iterdir()) and not (place / "index.sqlite").exists():
        raise FishermixError(
            f"{place} is not empty and contains no index. Name a new or empty directory with --index."
        )
    return LocalStore(place)


def delete_store(folder: Path, index: str | os.PathLike | None = None) -> str:
    """Delete the store of a folder, damaged or not, and return its name. The photos are not changed."""
    place = Path(index).expanduser() if index is not None else default_index(folder)
    if _is_address(index) or not os.path.isfile(place / "index.sqlite"):
        store = open_store(folder, index, must_exist=True)  # the index of a folder above says why not
        store.delete()
        return store.name
    from fishermix.retrieval.index_files import delete_files

    delete_files(place)
    return str(place)


def _is_address(index: str | os.PathLike | None) -> bool:
    return index is not None and str(index).startswith(("postgresql://", "postgres://"))


def _open_above(folder: Path, model_key: str | None) -> Store | None:
    """The store of a folder in the index of one above it; None if there is none."""
    from fishermix.retrieval.library import find_parent

    if (parent := find_parent(folder, model_key)) is None:
        return None
    from fishermix.retrieval.sqlite_store import LocalStore
    from fishermix.retrieval.subfolder_store import SubfolderStore

    return SubfolderStore(LocalStore(default_index(parent)), parent, folder)


def _explain_no_index(folder: Path, index: str | os.PathLike | None, place: Path) -> str:
    if not folder.is_dir():
        return f"There is no folder {folder}, and no index of it in {place}."
    where = f" --index {shlex.quote(str(index))}" if index is not None else ""
    command = f"fishermix index add {shlex.quote(str(folder))}{where}"
    return f"{folder} has no index yet. Create it with `{command}`."


class Hits(list[Hit]):
    """The result of a search: a list of `Hit`, which a notebook shows as thumbnails.

    Parameters
    ----------
    hits : iterable of Hit
        The photos, best first.
    index : PhotoIndex
        The index that was searched.
    """

    def __init__(self, hits: Iterable[Hit], index: PhotoIndex):
        super().__init__(hits)
        self._index = index

    def _repr_html_(self) -> str:
        from base64 import b64encode
        from html import escape

        from fishermix.retrieval.contact_sheet import make_thumbnail

        cards = []
        for hit in self[:MOST_THUMBNAILS]:
            text = f"{hit.score:.3f}<br>{escape(replace_undecodable(hit.path))}"
            try:
                data = b64encode(make_thumbnail(self._index.path(hit), THUMBNAIL_SIDE)).decode()
                picture = f'<img alt="" src="data:image/jpeg;base64,{data}">'
            except FishermixError as error:
                picture = escape(str(error))
            cards.append(f'<div style="max-width: {THUMBNAIL_SIDE}px">{picture}<br>{text}</div>')
        more = len(self) - len(cards)
        rest = f"<p>and {more:,} more</p>" if more else ""
        return f'<div style="display: flex; flex-wrap: wrap; gap: 1em">{"".join(cards)}</div>{rest}'


class PhotoIndex:
    """The photos below one folder, with their points of the joint space and their hubness corrections.

    Example::

        index = PhotoIndex("~/Pictures", model)
        index.update()
        for hit in index.search("two dogs run on a beach", n=10):
            print(hit.score, hit.path)

    Parameters
    ----------
    folder : path
        The folder of photos.
    model : ImageTextModel
        The model that encodes photos and sentences.
    index : path, optional
        Where the index is kept. Default: in the data folder of the user.
    store : Store, optional
        An open store, in place of `index`.
    exclude
        Globs, as in a .fishermixignore; photos that one matches are neither encoded nor found.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        model: Model,
        index: str | os.PathLike | None = None,
        store: Store | None = None,
        exclude: Sequence[str] = (),
    ):
        self.folder = resolve_folder(folder)
        self.model = model
        self.store = store or open_store(self.folder, index, model_key=model.key)
        self._index_option = f" --index {shlex.quote(str(index))}" if index is not None else ""
        self.exclude, self._patterns = tuple(exclude), parse_patterns(exclude)

    def __repr__(self) -> str:
        return f"PhotoIndex({str(self.folder)!r}, {self.store.summary().photos:,} photos)"

    def __enter__(self) -> PhotoIndex:
        return self

    def __exit__(self, *exception: object) -> None:
        self.store.close()

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def path(self, hit: Hit) -> Path:
        """The file of a photo that a search found.

        Parameters
        ----------
        hit : Hit
            A result of `search`.
        """
        return self.folder / hit.path

    def point(self, hit: Hit) -> np.ndarray:
        """The point (d,) of a photo that a search found.

        Parameters
        ----------
        hit : Hit
            A result of `search`.
        """
        point = self.point_of(hit.id)
        if point is None:
            raise FishermixError(f"{hit.path} is no longer in the index. Search again.")
        return point

    def point_of(self, photo: str) -> np.ndarray | None:
        """The point (d,) of a photo by its id; None if there is no such photo.

        Parameters
        ----------
        photo : str
            The id of a photo.
        """
        stored = self.store.vector_of(photo)
        return None if stored is None else stored[: self.model.dimension]

    # Updating

    def update(self) -> Changes:
        """Encode new and changed photos, recognize moved ones by their content, remove deleted ones."""
        dimension, key = self.model.match_dimension, self.model.key
        with self.store.writing():
            changes = Changes(another_model=self.store.adopt(key, dimension))
            self.store.remember_folder(self.folder)
            listing = scan_folder(self.folder, self.exclude, self.store.root)
            known = self.store.stamps()
            if self._patterns:
                known = {path: stamp for path, stamp in known.items() if not self._excludes(path)}
            present, unreadable = listing.photos, listing.unreadable
            if known and not present and not unreadable:
                raise FishermixError(
                    f"The index has {len(known):,} photos, but {self.folder} has none. Is the disk mounted? "
                    "If you deleted the photos, delete the index with "
                    f"`fishermix index remove {shlex.quote(str(self.folder))}{self._index_option}`."
                )
            todo = {
                path: stamp
                for path, stamp in present.items()
                if (old := known.get(path)) != stamp and not (old and _failed_alike(old, stamp))
            }
            files = {path: split_part(path)[0] for path in known}
            gone = [
                path
                for path, file in files.items()
                if file not in present and not path.startswith(tuple(unreadable))
            ]
            changes.removed = len({files[path] for path in gone})
            changes.unreadable, changes.skipped = unreadable, dict(listing.skipped)
            changes.left_out = listing.explain_left_out()
            # A file that changed may have other parts than before.
            old_parts = [path for path, file in files.items() if path != file and file in todo]
            if old_parts:
                self.store.write([], removed=old_parts)
            if todo or gone:
                self._write(todo, gone, changes)
            self._read_details()
            return changes

    def _read_details(self) -> None:
        """Read what photos say of themselves; for an index of an older version, that of all photos."""
        if not (missing := self.store.paths_without_details()):
            return
        from fishermix.retrieval.read_details import read_details

        with progress("reading dates and places", total=len(missing)) as bar:
            for paths in _chunks(iter(missing), CHUNK):
                self.store.write_details({path: read_details(self.folder, path) for path in paths})
                bar.advance(len(paths))

    def _excludes(self, path: str) -> bool:
        return is_excluded(split_part(path)[0], self._patterns)

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

    # Searching

    def search(
        self,
        query: str | np.ndarray | Query,
        n: int = 10,
        min_score: float | str | None = None,
        only: Filter | None = None,
    ) -> Hits:
        """The n photos with the highest scores, best first; in a notebook, they show as thumbnails.

        Parameters
        ----------
        query : str, array or Query
            A sentence, several with + and - between them, a row of `match_sentences`, or the unit point
            (d,) of a photo, which is compared by the cosine.
        n : int
            The number of photos.
        min_score : float or "auto", optional
            Only photos with at least this score. "auto" estimates a threshold for the query.
        only : Filter, optional
            Only photos that meet its conditions.
        """
        query = query if isinstance(query, Query) else self.encode_query(query)
        only = combine_filters(query.only, only)
        if not query.has_terms:
            return Hits(self._list_by_date(n, only), self)
        hits = self._find_files(query.vector, n, only)
        if min_score is not None:
            limit = self.estimate_threshold(query, hits) if min_score == "auto" else float(min_score)
            hits = [hit for hit in hits if hit.score >= limit]
        return Hits(hits, self)

    def _find_files(self, vector: np.ndarray, n: int, only: Filter | None = None) -> list[Hit]:
        """The n best files: of a video, its best frame; of a TIFF file, its best page."""
        asked, allowed = n, self._filter(only)
        while True:
            found = self.store.nearest(vector[None], asked)[0]
            best: dict[str, Hit] = {}
            for hit in found:
                if allowed is None or hit.path in allowed:
                    best.setdefault(hit.file, hit)
            if len(best) >= n or len(found) < asked:
                return list(best.values())[:n]
            asked *= 4

    def _list_by_date(self, n: int, only: Filter | None) -> list[Hit]:
        """The first n photos that meet the conditions, oldest first; their scores are 0."""
        taken = {path: details.taken or "" for path, details in self.store.details().items()}
        allowed = self._filter(only)
        paths = [path for path in taken if allowed is None or path in allowed]
        files = sorted((path for path in paths if split_part(path)[0] == path), key=lambda path: taken[path])
        ids = [(self.store.id_of(path), path) for path in files[:n]]
        return [Hit(photo, path, 0.0) for photo, path in ids if photo is not None]

    def _filter(self, only: Filter | None) -> set[str] | None:
        """The paths that meet the conditions and are not excluded; None if there is no condition."""
        if not only and not self.exclude:
            return None
        only = only or Filter()
        only.check()
        matching = (path for path, details in self.store.details().items() if only.matches(path, details))
        return {path for path in matching if not self._excludes(path)}

    def estimate_threshold(self, query: Query, hits: list[Hit]) -> float:
        """The score from which on a photo may be right; `hits` are the query's best photos.

        For a model without calibration, and for a query of photos, the score from which on it stands out.

        Parameters
        ----------
        query : Query
            The query.
        hits : list of Hit
            Its best photos.
        """
        if not query.has_terms:
            return float("-inf")
        if (judge := self.judge(query)) is not None:
            return judge.find_score(MAYBE)
        best = hits[0].score if hits else 0.0
        return estimate_threshold(self.store.sample_scores(query.vector, SCORES_FOR_THRESHOLD), best)

    def judge(self, query: Query) -> Judge | None:
        """What turns the scores of a query into probabilities that the photos are right.

        None for a query of photos alone, a model without calibration or a folder with few photos.

        Parameters
        ----------
        query : Query
            The query.
        """
        if not query.words or self.model.calibration is None:
            return None
        from fishermix.model.calibration import Judge, measure_scale

        scale = measure_scale(self.store.sample_scores(query.vector, SCORES_FOR_THRESHOLD), query.words)
        return None if scale is None else Judge(self.model.calibration, scale)

    def encode_query(self, query: str | np.ndarray) -> Query:
        """A query in the form in which the store is searched.

        Parameters
        ----------
        query : str or array
            A sentence, several with + and - between them, or a vector.
        """
        if isinstance(query, str):
            return encode_terms(parse_query(query), self.model, self.point_of)
        d, longer = self.model.dimension, self.model.match_dimension
        if np.shape(query) not in ((d,), (longer,)) or not np.isfinite(query).all():
            raise FishermixError(f"A query must be a sentence, or {d} or {longer} finite numbers.")
        return Query(np.pad(np.asarray(query, np.float32), (0, longer - len(query))))


def _mark_failure(stamp: Stamp) -> Stamp:
    """The stamp of a file that cannot be read with the pixel limit and the packages of now. It matches no
    file, and differs with another limit or another package.
    """
    import zlib

    from fishermix.vision.formats import list_formats
    from fishermix.vision.images import default_max_pixels

    circumstances = f"{default_max_pixels()} {list_formats()}"
    return Stamp(-1 - stamp.size, stamp.mtime_ns ^ zlib.crc32(circumstances.encode()))


def _failed_alike(old: Stamp, stamp: Stamp) -> bool:
    return old.size == -1 - stamp.size and old == _mark_failure(stamp)


def may_have_parts(path: str) -> bool:
    """Whether a file may be several photos: the frames of a video or the pages of a TIFF file."""
    found = find_format(path)
    return found is not None and found.name in ("video", "TIFF")


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
