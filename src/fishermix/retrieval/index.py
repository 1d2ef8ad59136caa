"""The index of a photo folder: brought up to date by looking only at what changed, then searched."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from fishermix.errors import FishermixError
from fishermix.progress import Bar, progress
from fishermix.retrieval.photo_files import default_index, photo_folder, photos_in
from fishermix.retrieval.query import query_vector, terms_of_text
from fishermix.retrieval.store import Entry, Hit, Stamp, Store
from fishermix.retrieval.threshold import automatic_cut

T = TypeVar("T")
# A change is committed per batch: a crash costs at most this many photos' work.
BATCH = 64
# Files are hashed, and given to the encoder, this many at a time: its pipeline of threads runs dry once per
# chunk.
CHUNK = 1024
SCORES_FOR_CUT = 20_000


class Model(Protocol):
    """What an index asks of `fishermix.ImageTextModel`."""

    @property
    def image_encoder(self) -> Any: ...
    @property
    def sentence_encoder(self) -> Any: ...
    @property
    def cca(self) -> Any: ...
    @property
    def captioner(self) -> Any: ...
    @property
    def key(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    @property
    def match_dimension(self) -> int: ...
    def encode_text(self, sentences: Sequence[str]) -> np.ndarray: ...
    def encode_images(self, images: Sequence[Any]) -> np.ndarray: ...
    def image_points(self, features: np.ndarray) -> np.ndarray: ...
    def match_images(self, points: np.ndarray) -> np.ndarray: ...
    def match_sentences(self, points: np.ndarray) -> np.ndarray: ...
    def caption_points(self, points: np.ndarray) -> list[str]: ...


@dataclass
class Changes:
    """What an update did: photos encoded, photos recognised by content, photos forgotten, photos
    unreadable.
    """

    encoded: int = 0
    recognised: int = 0
    removed: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
    another_model: bool = False

    def __bool__(self) -> bool:
        return bool(self.encoded or self.recognised or self.removed or self.unreadable)


def open_store(folder: Path, index: str | os.PathLike | None = None, must_exist: bool = False) -> Store:
    """The store of a folder: where `index` says (a directory or a postgresql:// address), else in its
    default place.
    """
    if index is not None and str(index).startswith(("postgresql://", "postgres://")):
        from fishermix.retrieval.postgres_store import PostgresStore

        return PostgresStore(str(index))
    from fishermix.retrieval.sqlite_store import LocalStore

    place = Path(index).expanduser() if index is not None else default_index(folder)
    if must_exist and not (place / "index.sqlite").is_file():
        if not folder.is_dir():
            raise FishermixError(f"there is no folder {folder}, and no index of it in {place}")
        where = f" --index {index}" if index is not None else ""
        raise FishermixError(f"{folder} has no index yet: `fishermix index add {folder}{where}` makes one")
    if place.is_dir() and any(place.iterdir()) and not (place / "index.sqlite").exists():
        raise FishermixError(
            f"{place} is not empty and holds no index: name a new or empty directory with --index"
        )
    return LocalStore(place)


class PhotoIndex:
    """The photos below one folder and their joint-space points, as `match_images` has them.

    index = PhotoIndex("~/Pictures", model)
    index.update()
    for hit in index.search("two dogs run on a beach", n=10):
        print(hit.score, hit.path)
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        model: Model,
        index: str | os.PathLike | None = None,
        store: Store | None = None,
    ):
        self.folder = photo_folder(folder)
        self.model = model
        self.store = store or open_store(self.folder, index)

    def __enter__(self) -> PhotoIndex:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self.store.close()

    def path(self, hit: Hit) -> Path:
        return self.folder / hit.path

    def point(self, hit: Hit) -> np.ndarray:
        """The point (d,) of a photo found."""
        point = self.point_of(hit.id)
        if point is None:
            raise FishermixError(f"{hit.path} is no longer in the index: search again")
        return point

    def point_of(self, photo: str) -> np.ndarray | None:
        """The point (d,) of a photo by its id, None if there is no such photo."""
        stored = self.store.vector_of(photo)
        return None if stored is None else stored[: self.model.dimension]

    # Keeping up with the folder

    def update(self) -> Changes:
        """Encode what is new or changed, recognise what was moved, forget what is gone."""
        with self.store.writing():
            changes = Changes(another_model=self.store.adopt(self.model.key, self.model.match_dimension))
            (present, closed), known = photos_in(self.folder), self.store.stamps()
            if known and not present and not closed:
                raise FishermixError(
                    f"none of the {len(known):,} photos of the index is in {self.folder} any more: if that "
                    "is on a disk, is it mounted? If they were deleted, `fishermix index remove` forgets them"
                )
            todo = {path: stamp for path, stamp in present.items() if known.get(path) != stamp}
            gone = [path for path in known if path not in present and not path.startswith(tuple(closed))]
            try:
                if todo:
                    with progress("indexing photos", total=len(todo)) as bar:
                        for chunk in _chunks(iter(todo.items()), CHUNK):
                            self._index(dict(chunk), changes, bar)
                if gone:
                    self.store.write([], removed=gone)
            except OSError as error:
                raise FishermixError(f"the index {self.store.name} could not be written ({error})") from error
            changes.removed, changes.unreadable = len(gone), changes.unreadable | closed
            if changes:
                self.store.tune()
            return changes

    def _index(self, chunk: dict[str, Stamp], changes: Changes, bar: Bar) -> None:
        failed: list[Entry] = []
        hashed: dict[str, bytes] = {}
        for path in chunk:
            try:
                with open(self.folder / path, "rb") as file:
                    hashed[path] = hashlib.file_digest(file, "sha256").digest()
            except OSError as error:
                # With a stamp that no file has, so that the next update tries again.
                failed.append(Entry(path, Stamp(0, 0), reason=f"cannot be opened ({error.strerror})"))
        known = self.store.known_contents(list(hashed.values()))
        recognised = [Entry(path, chunk[path], digest) for path, digest in hashed.items() if digest in known]
        self.store.write(recognised + failed)
        changes.recognised += len(recognised)
        changes.unreadable |= {entry.path: entry.reason or "" for entry in failed}
        bar.advance(len(recognised) + len(failed))
        fresh = [path for path, digest in hashed.items() if digest not in known]
        for batch in _chunks(self._encoded(fresh), BATCH):
            entries = self._entries(batch, chunk, hashed)
            self.store.write(entries)
            unreadable = {entry.path: entry.reason for entry in entries if entry.reason is not None}
            changes.unreadable |= unreadable
            changes.encoded += len(entries) - len(unreadable)
            bar.advance(len(batch))

    def _encoded(self, paths: list[str]) -> Iterator[tuple[str, np.ndarray | FishermixError]]:
        if not paths:
            return
        for position, result in self.model.image_encoder.stream([self.folder / path for path in paths]):
            yield paths[position], result

    def _entries(
        self,
        batch: list[tuple[str, np.ndarray | FishermixError]],
        chunk: dict[str, Stamp],
        hashed: dict[str, bytes],
    ) -> list[Entry]:
        readable = [(path, result) for path, result in batch if isinstance(result, np.ndarray)]
        entries = []
        if readable:
            points = self.model.image_points(np.stack([vector for _, vector in readable]))
            for (path, _), vector in zip(readable, self.model.match_images(points)):
                entries.append(Entry(path, chunk[path], hashed[path], vector))
        for path, result in batch:
            if not isinstance(result, np.ndarray):
                entries.append(Entry(path, chunk[path], reason=getattr(result, "reason", str(result))))
        # A file that changed while it was read is left for the next update.
        return [entry for entry in entries if _unchanged(self.folder / entry.path, entry.stamp)]

    # Searching

    def search(self, query: str | np.ndarray, n: int = 10, min_score: float | str | None = None) -> list[Hit]:
        """The photos that fit a query, best first; `min_score` is a score, or "auto".

        query : a sentence, or several with + and - between; a row of `match_sentences`; or a unit point (d,),
            which is compared by the cosine alone, as for photos like a photo
        """
        vector = self.query(query)
        hits = self.store.nearest(vector[None], n)[0]
        if min_score is None:
            return hits
        limit = self.cut(vector, hits) if min_score == "auto" else float(min_score)
        return [hit for hit in hits if hit.score >= limit]

    def cut(self, query: np.ndarray, hits: list[Hit]) -> float:
        """The score from which on a photo stands out for this `query`; `hits` are its best photos."""
        best = hits[0].score if hits else 0.0
        return automatic_cut(self.store.sample_scores(query, SCORES_FOR_CUT), best)

    def query(self, query: str | np.ndarray) -> np.ndarray:
        """What `search` takes, as the vector whose dot product with what is stored is the score."""
        if isinstance(query, str):
            query = query_vector(terms_of_text(query), self.model, self.point_of)
        d, longer = self.model.dimension, self.model.match_dimension
        if np.shape(query) not in ((d,), (longer,)) or not np.isfinite(query).all():
            raise FishermixError(f"a query is a sentence, or {d} or {longer} finite numbers")
        return np.pad(np.asarray(query, np.float32), (0, longer - len(query)))


def _unchanged(path: Path, stamp: Stamp) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return Stamp(status.st_size, status.st_mtime_ns) == stamp


def _chunks(items: Iterator[T], size: int) -> Iterator[list[T]]:
    while chunk := list(islice(items, size)):
        yield chunk
