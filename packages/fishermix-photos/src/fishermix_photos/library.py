"""`PhotoLibrary`: all that the command line, the page and a program may ask of a collection of photos."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fishermix.errors import FishermixError
from fishermix.progress import listen_to_progress

from fishermix_photos.disk import data_folder
from fishermix_photos.photo_files import add_slash, find_covering, resolve, scan_folder
from fishermix_photos.query import (
    NAME_OF_PLACE,
    check_words,
    compare_by_cosine,
    encode_sentence,
    encode_terms,
    explain_unknown,
    parse_query,
    read_names,
    read_terms,
    split_sentences,
)
from fishermix_photos.results import (
    Changes,
    Facets,
    FolderStatus,
    NotInLibrary,
    Photo,
    Query,
    Results,
    Summary,
    UnknownPhoto,
)
from fishermix_photos.search import PhotoSearch, count_facets
from fishermix_photos.store import LocalStore
from fishermix_photos.update import run_updates
from fishermix_photos.vision.formats import count_photos

if TYPE_CHECKING:
    from fishermix.caption.consensus import Description

    from fishermix_photos.database import Scope
    from fishermix_photos.describe import Explanation, SentencePool
    from fishermix_photos.duplicates import DuplicateGroup
    from fishermix_photos.model import ImageTextModel
    from fishermix_photos.postgres import PostgresStore

Progress = Callable[[str, int, int | None], None]
ADDRESSES = ("postgresql://", "postgres://")
REMEMBERED_UPLOADS = 32
PHOTOS_FOR_TOPICS = 600  # a sample of this many says what a folder is about


class PhotoLibrary(AbstractContextManager):
    """The photos of all folders that were added, with their points of the joint space.

    It may be used by several threads. Methods with `folders` look only at photos below one of these folders,
    or at all if there are none. A `photo` is the id of a photo, or the point that `encode_photo` gives.

    Parameters
    ----------
    place : path or str, optional
        Where the library is kept: a directory, or a postgresql:// address of one that several machines share.
        Default: the user's data folder. There, each custom model has its own library.
    model : ImageTextModel or path, optional
        The model, or its folder. Default: the model in the package. It is loaded on first need.

    See Also
    --------
    fishermix_photos.Query : all that a search can be asked for.
    fishermix_photos.ImageTextModel : scores of a few photos, without a library.

    Examples
    --------
    >>> with PhotoLibrary() as library:
    ...     changes = library.update(["~/Pictures"])
    ...     results = library.search("two dogs run on a beach")
    >>> len(results.photos)
    10
    """

    def __init__(
        self,
        place: str | os.PathLike | None = None,
        model: ImageTextModel | str | os.PathLike | None = None,
    ):
        self._given_model = model
        self._loading, self._lock = threading.RLock(), threading.Lock()
        self._uploads: dict[bytes, np.ndarray] = {}
        self._open_pool = lru_cache(2)(self._make_pool)  # of the model, and of given sentences
        self._topics = lru_cache(1)(self._find_topics)  # of one version of the library
        self._list_places = lru_cache(1)(lambda scope: self._store.places(scope.prefixes))
        self._store = self._open_store(place)
        self._search = PhotoSearch(self._store)

    def _open_store(self, place: str | os.PathLike | None) -> LocalStore | PostgresStore:
        if place is not None and str(place).startswith(ADDRESSES):
            from fishermix_photos.postgres import PostgresStore

            return PostgresStore(str(place))
        if place is None:
            is_shipped = self._given_model is None or getattr(self.model, "is_shipped", False)
            place = data_folder() / ("library" if is_shipped else f"library-{self.model.key}")
        return LocalStore(Path(place).expanduser())

    def __repr__(self) -> str:
        return f"PhotoLibrary({self.place!r}, {count_photos(self.count())})"

    @property
    def place(self) -> str:
        """Where the library is kept: a directory, or the address of a database without its password."""
        return self._store.name

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files of the library."""
        self._store.close()

    @property
    def model(self) -> ImageTextModel:
        """The model that encodes photos and sentences."""
        if "_model" not in vars(self):  # a search does not wait for what else is being loaded
            with self._loading:
                return self._model
        return self._model

    @cached_property
    def _model(self) -> ImageTextModel:
        if isinstance(self._given_model, str | os.PathLike | None):
            from fishermix_photos.model import ImageTextModel

            return ImageTextModel.load(self._given_model)
        return self._given_model

    @property
    def version(self) -> int:
        """A number that changes whenever a process changes the library."""
        return self._store.state().version

    # Folders

    def update(
        self,
        folders: Sequence[str | os.PathLike],
        on_progress: Progress | None = None,
        query: Query | None = None,
    ) -> Changes:
        """Encode new and changed photos, recognize moved ones by their content, remove deleted ones.

        Folders that are new are added to the library.

        Parameters
        ----------
        folders : sequence of paths
            The folders to look at.
        on_progress : callable, optional
            Is called with what is being done, the number of photos done and their total.
        query : Query, optional
            What will be searched for: it is checked before hours of encoding a new folder.
        """
        check = None if query is None else partial(self.check, query)
        with listen_to_progress(on_progress) if on_progress else nullcontext():
            return run_updates(self._store, self.model, folders, check)

    def folders(self) -> list[FolderStatus]:
        """The folders of the library, by path."""
        return [self._describe_folder(Path(path)) for path in self._store.state().folders]

    def status(self, folder: str | os.PathLike) -> FolderStatus:
        """What the library has of one of its folders, or of one inside, and what it skips there."""
        place = resolve(folder)
        root = self.covering(place)
        if root is None:
            raise NotInLibrary(f"{place} is not in the photo library.", folder=place, covering=None)
        found = self._describe_folder(place)
        if not found.exists:
            return found
        listing = scan_folder(place, root=root)
        unreadable = {add_slash(place) + path: reason for path, reason in listing.unreadable.items()}
        return replace(
            found,
            unreadable={**found.unreadable, **unreadable},
            skipped=dict(listing.skipped),
            remarks=listing.explain_left_out(),
        )

    def _describe_folder(self, folder: Path) -> FolderStatus:
        photos, *_ = self._store.count([add_slash(folder)])
        return FolderStatus(folder, photos, folder.is_dir(), self._store.unreadable([add_slash(folder)]))

    def covering(self, folder: str | os.PathLike) -> Path | None:
        """The folder of the library that is `folder` or contains it; None if there is none."""
        return find_covering(resolve(folder), self._store.state().folders)

    def remove(self, folder: str | os.PathLike) -> int:
        """Remove a folder, which need not exist any more, and return the number of its photos. No file is
        changed.
        """
        place = resolve(folder)
        if str(place) not in self._store.state().folders:
            covering = self.covering(place)
            inside = f" It is part of {covering}." if covering else ""
            raise NotInLibrary(
                f"{place} is not a folder of the photo library.{inside}", folder=place, covering=covering
            )
        with self._store.updating([str(place)]):
            count = self._store.count([add_slash(place)])[0]
            self._store.remove_folder(str(place))
        return count

    def delete(self) -> None:
        """Delete the library, damaged or not. No photo is changed."""
        self._store.delete()

    def summary(self) -> Summary:
        """How much the library holds."""
        state, (photos, contents, pictures) = self._store.state(), self._store.count()
        return Summary(photos, contents, pictures, state.model_key, state.dimension, self._store.size())

    def verify(self) -> list[str]:
        """A sentence for each problem of the library's files; empty if there is none."""
        return self._store.verify()

    # Photos

    def check(self, query: Query, files: Collection[str] = ()) -> None:
        """Raise if a query cannot be understood: what a search would say, before hours of encoding photos.

        files : the names, in lower case, of photos that will be added: the query may ask for one
        """
        terms, *_ = read_terms(query.terms, query.filter)
        sentences = []
        for term in terms:
            if term.kind == "text" and not any(word in files for word in term.value.lower().split()):
                check_words(term.value)
                sentences.append(term)
        if len(sentences) == len(terms) > 0:
            encode_terms(sentences, self.model, self._find_point)
        for term in sentences:
            encode_sentence(term.value, self.model)

    def search(self, query: Query | str) -> Results:
        """The photos that a query describes. A query that is only a date lists the photos of that time.

        query : a line is read by `parse_query`

        Returns
        -------
        found : Results
            The photos, the best first, and remarks on how the query was read.
        """
        if isinstance(query, str):
            query = Query(parse_query(query))
        scope = self._store.scope(query.folders)
        terms, filter, remarks = read_terms(query.terms, query.filter)
        count = partial(self._store.count_names, prefixes=scope.prefixes)
        named = read_names(terms, count, lambda: self.model)
        remarks += named.remarks
        query = replace(query, filter=replace(filter, names=(*filter.names, *named.required)))
        if not named.terms:
            found = self._browse(query if query.sort != "score" else replace(query, sort="date"), scope)
            return replace(found, remarks=(*remarks, *found.remarks))
        model = self.model
        query, near = self._find_near(query, scope)
        encoded = encode_terms(named.terms, model, self._find_point)
        remarks += [*near, *explain_unknown(encoded.unknown_words, model, query.terms)]
        preferred = named.preferred if model.calibration is not None and query.sort == "score" else {}
        for name, counts in preferred.items():
            number: object = counts
            if query.filter:  # names are counted without these conditions
                filter = replace(query.filter, names=(*query.filter.names, name))
                number = self._search.browse(replace(query, filter=filter, n=1, offset=0), scope).total
            if number:
                remarks.append(f"Photos named '{name}' come first: {number}.")
        found = self._search.find(query, encoded, model, scope, list(preferred))
        return replace(found, remarks=tuple(remarks), unknown_words=encoded.unknown_words)

    def _find_near(self, query: Query, scope: Scope) -> tuple[Query, list[str]]:
        """The query with coordinates in place of the name of a place, and a remark on it."""
        if query.filter.near is None or NAME_OF_PLACE.search(query.filter.near) is None:
            return query, []
        from fishermix_photos.places import find_place

        filter, remark = find_place(query.filter, self._list_places(scope))
        return replace(query, filter=filter), [remark]

    def browse(self, query: Query) -> Results:
        """List photos without terms, newest first unless `query.sort` says otherwise."""
        return self._browse(query, self._store.scope(query.folders))

    def _browse(self, query: Query, scope: Scope) -> Results:
        query, remarks = self._find_near(query, scope)
        return replace(self._search.browse(query, scope), remarks=tuple(remarks))

    def similar(
        self, photo: str | np.ndarray, n: int = 10, folders: Sequence[str | os.PathLike] = ()
    ) -> Results:
        """The n photos that are most similar to one, without itself."""
        scope = self._store.scope(folders, self.model.key)
        vector = compare_by_cosine(self._point(photo), self.model)
        photos = self._store.nearest_files(vector, n + 1, scope.prefixes)
        others = [other for other in photos if isinstance(photo, np.ndarray) or other.id != photo]
        return Results(tuple(others[:n]))

    def annotate(
        self, photo: str | np.ndarray, n: int = 5, sentences: Sequence[str] | None = None
    ) -> list[tuple[str, float]]:
        """The n sentences with the highest scores for a photo, and their scores; by default, of those of the
        model.
        """
        with self._loading:
            pool = self._open_pool(None if sentences is None else tuple(sentences))
        return pool.rank_for_photos(self._point(photo)[None], n)[0]

    def describe(self, photo: str | np.ndarray) -> Description:
        """A new `sentence` for a photo, its `confidence`, and whether it is `unsure`."""
        return self.model.describe_points(self._point(photo)[None])[0]

    def explain(self, query: str, photo: str | np.ndarray) -> Explanation:
        """How much each word contributes to the score of a photo. Sentences that the query subtracts have
        their own scores; its photos are ignored.
        """
        from fishermix_photos.describe import explain_score

        wanted, subtracted = split_sentences(query)
        return explain_score(wanted, self._point(photo), subtracted, self.model)

    def duplicates(
        self, folders: Sequence[str | os.PathLike] = (), exact: bool = False
    ) -> list[DuplicateGroup]:
        """Groups of photos that are the same: equal files and, unless `exact`, copies in another size, format
        or quality.
        """
        from fishermix_photos.duplicates import find_duplicates

        prefixes = self._store.scope(folders, self.model.key).prefixes
        photos = [photo for photo in self._store.photos(prefixes) if photo.picture == photo.path]
        pictures = self._store.pictures([photo.id for photo in photos])
        return find_duplicates(photos, pictures, self.model.dimension, exact)

    def encode_photo(self, image: Any) -> np.ndarray:
        """The point (d,) float32 of a picture, a path or bytes, that need not be in the library; those of the
        last 32 bytes are remembered.
        """
        if not isinstance(image, bytes):
            return self.model.encode_images([image])[0]
        if not image:
            raise FishermixError("The picture is empty. Send a photo.")
        digest = hashlib.sha256(image).digest()
        point = self._uploads.get(digest)
        if point is None:
            point = self.model.encode_images([image])[0]
            with self._lock:
                self._uploads[digest] = point
                if len(self._uploads) > REMEMBERED_UPLOADS:
                    del self._uploads[next(iter(self._uploads))]
        return point

    def _point(self, photo: str | np.ndarray) -> np.ndarray:
        """The point (d,) of a photo by its id, or as it was given."""
        if isinstance(photo, str):
            point = self._find_point(photo)
            if point is None:
                raise _unknown(photo)
            return point
        d = self.model.dimension
        if np.shape(photo) != (d,) or not np.isfinite(photo).all():
            raise FishermixError(f"A point must be {d} finite numbers.")
        return np.asarray(photo, np.float32)

    def _find_point(self, photo: str) -> np.ndarray | None:
        picture = self._store.pictures([photo]).get(photo)
        if picture is None:
            return None
        self._store.scope((), self.model.key)  # raises if the points are of another model
        return picture.point[: self.model.dimension]

    def photo(self, id: str) -> Photo:
        """A photo by its id; raises `UnknownPhoto` if there is none."""
        photos = self._store.find([id])
        if not photos:
            raise _unknown(id)
        return photos[0]

    def count(self, folders: Sequence[str | os.PathLike] = ()) -> int:
        """The number of photos, videos and TIFF files that could be read."""
        return self._store.count(self._store.scope(folders).prefixes)[0]

    def facets(self, folders: Sequence[str | os.PathLike] = ()) -> Facets:
        """The years, folders and kinds of the photos, with their numbers."""
        return count_facets(self._store.files(self._store.scope(folders).prefixes))

    def topics(self, folders: Sequence[str | os.PathLike] = ()) -> list[str]:
        """Words that the photos are about."""
        return self._topics(self._store.scope(folders, self.model.key))

    def _find_topics(self, scope: Scope) -> list[str]:
        from fishermix_photos.describe import find_topics

        files = self._store.files(scope.prefixes)
        sample = [id for id, *_ in files[:: max(1, len(files) // PHOTOS_FOR_TOPICS)]]
        pictures = self._store.pictures(sample).values()
        points = [picture.point[: self.model.dimension] for picture in pictures]
        with self._loading:
            pool = self._open_pool(None)
        return find_topics(pool, np.stack(points) if points else np.empty((0, 0)))

    # What takes seconds to load: a search does not wait for it

    def load(self) -> None:
        """Load everything that answers may need, before the first question."""
        self.model.image_encoder  # noqa: B018 (opens the network)
        with self._loading:
            self._open_pool(None)
        self.model.captioner  # noqa: B018

    def _make_pool(self, sentences: tuple[str, ...] | None) -> SentencePool:
        from fishermix_photos.describe import SentencePool

        return SentencePool(self.model, sentences)


def _unknown(photo: str) -> UnknownPhoto:
    return UnknownPhoto(f"There is no photo '{photo}' in the library.", photo=photo)
