"""`PhotoLibrary`: all that the command line, the page and a program may ask of a collection of photos."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fishermix.errors import FishermixError
from fishermix.progress import listen_to_progress

from fishermix_photos.disk import data_folder, lacks_named_home
from fishermix_photos.index.errors import LibraryAway
from fishermix_photos.index.photo import name_folders
from fishermix_photos.index.scan import add_slash, find_covering, resolve, scan_folder
from fishermix_photos.index.update import run_updates
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.photos.formats import count_photos
from fishermix_photos.search.catalog import Catalog
from fishermix_photos.search.facets import Facets, count_facets
from fishermix_photos.search.pipeline import PreparedQuery, list_photos, run_search
from fishermix_photos.search.places import find_place, names_place
from fishermix_photos.search.reading import Reading, read_terms, split_sentences
from fishermix_photos.search.results import (
    Changes,
    FolderStatus,
    NotInLibrary,
    Photo,
    Query,
    Results,
    Summary,
    UnknownPhoto,
)
from fishermix_photos.search.spelling import correct_terms
from fishermix_photos.search.terms import CAMERA_NAME, check_words, parse_query
from fishermix_photos.search.understanding import understand
from fishermix_photos.search.vectors import Sentences, compare_by_cosine, embed_terms, encode_sentence

if TYPE_CHECKING:
    from fishermix_photos.index.duplicates import DuplicateGroup
    from fishermix_photos.index.protocol import PhotoIndex
    from fishermix_photos.index.texts import TextCounts
    from fishermix_photos.index.values import Scope
    from fishermix_photos.model.captioner.consensus import Description
    from fishermix_photos.model.explain import Explanation
    from fishermix_photos.model.model import ImageTextModel
    from fishermix_photos.model.sentences import SentencePool
    from fishermix_photos.photos.open import ImageSource
    from fishermix_photos.photos.text import ReadText

Progress = Callable[[str, int, int | None], None]
ADDRESSES = ("postgresql://", "postgres://")
REMEMBERED_UPLOADS = 32
PHOTOS_FOR_TOPICS = 600  # a sample of this many says what a folder is about
PHOTOS_FOR_SUGGESTIONS = 3000  # of more, suggestions are those of a sample


class PhotoLibrary(AbstractContextManager["PhotoLibrary"]):
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
        place: str | os.PathLike[str] | None = None,
        model: ImageTextModel | str | os.PathLike[str] | None = None,
    ):
        self._given_model = model
        self._loading = threading.RLock()  # held while the model or its sentences are loaded or forgotten
        self._uploads: dict[str, np.ndarray] = {}
        self._uploading = threading.Lock()  # held while `_uploads` is changed
        self._needed = time.monotonic()  # when networks, captioner or sentences were needed last
        self._open_pool = lru_cache(2)(self._make_pool)  # of the model, and of given sentences
        self._topics = lru_cache(1)(self._find_topics)  # of one version of the library
        self._list_places = lru_cache(1)(lambda scope: self._store.places(scope.prefixes))
        self._is_named = place is not None
        self._store = self._open_store(place)

    def _open_store(self, place: str | os.PathLike[str] | None) -> PhotoIndex:
        if place is not None and str(place).startswith(ADDRESSES):
            from fishermix_photos.index.postgres import PostgresIndex

            return PostgresIndex(str(place))
        if place is None:
            is_shipped = self._given_model is None or getattr(self.model, "is_shipped", False)
            place = data_folder() / ("library" if is_shipped else f"library-{self.model.key}")
        return LocalIndex(Path(place).expanduser())

    def __repr__(self) -> str:
        return f"PhotoLibrary({self.place!r}, {count_photos(self.count())})"

    @property
    def place(self) -> str:
        """Where the library is kept: a directory, or the address of a database without its password."""
        return self._store.name

    def __exit__(self, *exception: object) -> None:
        self.close()

    def expect_there(self) -> None:
        """Raise `LibraryAway` if a place was named and has no library: its disk may not be mounted.

        A data folder that FISHERMIX_HOME names may be empty, as a new volume of a container is, but not gone.
        """
        if not self._store.exists() and (self._is_named or lacks_named_home()):
            raise LibraryAway(
                f"There is no photo library in {self.place}. Is its disk mounted? `fishermix library add` "
                "makes a new one there.",
                place=self.place,
            )

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
            from fishermix_photos.model.model import ImageTextModel

            return ImageTextModel.load(self._given_model)
        return self._given_model

    @property
    def version(self) -> int:
        """A number that changes whenever a process changes the library."""
        return self._store.state().version

    # Folders

    def update(
        self,
        folders: Sequence[str | os.PathLike[str]],
        on_progress: Progress | None = None,
        query: Query | PreparedQuery | None = None,
    ) -> Changes:
        """Encode new and changed photos, recognize moved ones by their content, remove deleted ones.

        Folders that are new are added to the library.

        Parameters
        ----------
        folders : sequence of paths
            The folders to look at.
        on_progress : callable, optional
            Is called with what is being done, the number of photos done and their total.
        query : Query or PreparedQuery, optional
            What will be searched for: it is checked before hours of encoding a new folder.
        """
        check = None if query is None else partial(self.check, self.prepare(query))
        with listen_to_progress(on_progress) if on_progress else nullcontext():
            changes = run_updates(self._store, self.model, folders, check)
        if changes.encoded:
            self._needed = time.monotonic()
        return changes

    def read_texts(
        self,
        folders: Sequence[str | os.PathLike[str]] = (),
        on_progress: Progress | None = None,
        read: ReadText | None = None,
        skip: set[bytes] | None = None,
    ) -> TextCounts:
        """Read the text in the photos of the library that have not been read, for searches to come.

        An interruption loses the last seconds; the next call goes on.

        Parameters
        ----------
        folders : sequence of paths
            Only photos below these folders.
        on_progress : callable, optional
            Is called with what is being done, the number of photos done and their total.
        read : callable, optional
            Gives the text in a picture. Default: a process of the package that `fishermix-photos[text]`
            installs.
        skip : set of bytes, optional
            The hashes of photos to leave to a later pass. Those that this one could not read, and another
            may, are added.
        """
        from fishermix_photos.index.texts import read_texts
        from fishermix_photos.photos.text import TextReader

        prefixes = self._store.scope(folders).prefixes
        with (
            listen_to_progress(on_progress) if on_progress else nullcontext(),
            TextReader() if read is None else nullcontext(read) as reader,
        ):
            return read_texts(self._store, reader, prefixes, skip)

    def folders(self) -> list[FolderStatus]:
        """The folders of the library, by path."""
        return [self._describe_folder(Path(path)) for path in self._store.state().folders]

    def status(self, folder: str | os.PathLike[str]) -> FolderStatus:
        """What the library has of one of its folders, or of one inside, and what it skips there."""
        place = resolve(folder)
        root = self.covering(place)
        if root is None:
            self.expect_there()
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
        return FolderStatus(
            folder=folder,
            photos=photos,
            exists=folder.is_dir(),
            unreadable=self._store.unreadable([add_slash(folder)]),
        )

    def covering(self, folder: str | os.PathLike[str]) -> Path | None:
        """The folder of the library that is `folder` or contains it; None if there is none."""
        return find_covering(resolve(folder), self._store.state().folders)

    def remove(self, folder: str | os.PathLike[str]) -> int:
        """Remove a folder, which need not exist any more, and return the number of its photos. No file is
        changed.
        """
        place = resolve(folder)
        if str(place) not in self._store.state().folders:
            self.expect_there()
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
        state = self._store.state()
        (photos, contents, pictures) = self._store.count()
        return Summary(
            photos=photos,
            contents=contents,
            pictures=pictures,
            model_key=state.model_key,
            dimension=state.dimension,
            bytes=self._store.size(),
        )

    def verify(self) -> list[str]:
        """A sentence for each problem of the library's files; empty if there is none."""
        return self._store.verify()

    # Photos

    def prepare(self, query: Query | PreparedQuery | str) -> PreparedQuery:
        """A query that is understood, checked and searched for without encoding its sentences twice.

        query : a line is read by `parse_query`
        """
        if isinstance(query, PreparedQuery):
            return query
        if isinstance(query, str):
            query = Query(parse_query(query))
        return PreparedQuery(query, Sentences(lambda: self.model))

    def check(self, query: Query | PreparedQuery, files: Collection[str] = ()) -> None:
        """Raise if a query cannot be understood: what a search would say, before hours of encoding photos.

        files : the names, in lower case, of photos that will be added: the query may ask for one
        """
        prepared = self.prepare(query)
        stems = (file.rpartition(".")[0] for file in files)
        files = {*files, *(stem for stem in stems if CAMERA_NAME.fullmatch(stem.upper()))}
        terms = self.read(prepared.query, files).terms
        sentences = []
        for term in terms:
            if term.kind == "text" and not any(word in files for word in term.value.lower().split()):
                check_words(term.value)
                prepared.sentences.encode(term.value)
                sentences.append(term)
        if len(sentences) == len(terms) > 0:
            embed_terms(sentences, self.model, self._find_point, prepared.sentences)

    def read(self, query: Query | str, names: Collection[str] = ()) -> Reading:
        """The sentences of a query without dates and typing mistakes, and notes on these. Names remain words.

        names : words in lower case that are no mistakes, next to the names in the library
        """
        if isinstance(query, str):
            query = Query(parse_query(query))
        reading = read_terms(query.terms, query.filter)
        if not any(term.kind == "text" for term in reading.terms):
            return reading
        catalog = Catalog(self._store, self._store.scope(()), self._list_places)

        def is_name(word: str) -> bool:
            return word.lower() in names or catalog.has_name(word)

        terms, corrections = correct_terms(reading.terms, query.terms, is_name, self.model)
        return replace(reading, terms=terms, notes=(*reading.notes, *corrections))

    def search(self, query: Query | PreparedQuery | str) -> Results:
        """The photos that a query describes. A query that is only a date lists the photos of that time.

        query : a line is read by `parse_query`

        Returns
        -------
        found : Results
            The photos, the best first, and notes on how the query was read.
        """
        return run_search(
            self.prepare(query), self._store, lambda: self.model, self._find_point, self._list_places
        )

    def browse(self, query: Query) -> Results:
        """List photos without terms, newest first unless `query.sort` says otherwise."""
        scope = self._store.scope(query.folders)
        reading = Reading(filter=query.filter)
        if names_place(query.filter):
            filter, note = find_place(query.filter, self._list_places(scope))
            reading = Reading(filter=filter, notes=(note,))
        return list_photos(query, reading, self._store, scope)

    def similar(
        self, photo: str | np.ndarray, n: int = 10, folders: Sequence[str | os.PathLike[str]] = ()
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

    def describe(self, photo: str | np.ndarray, image: ImageSource | None = None) -> Description:
        """A new `sentence` for a photo, its `confidence`, and whether it is `unsure`.

        image : the photo itself, if it is not in the library; its pixels say whether it has colors
        """
        from fishermix_photos.photos.color import look_for_colors

        self._needed = time.monotonic()
        point = self._point(photo)
        if image is None and isinstance(photo, str) and photo not in self._uploads:
            image = self.photo(photo).path
        return self.model.describe_points(point[None], in_color=[look_for_colors(image)])[0]

    def explain(self, query: Query | str, photo: str | np.ndarray) -> Explanation:
        """How much each word contributes to the score of a photo. Dates, required names and photos of a query
        are ignored: they have no part in the score.
        """
        from fishermix_photos.model.explain import explain_score

        asked = Query(parse_query(query)) if isinstance(query, str) else query
        catalog = Catalog(self._store, self._store.scope(asked.folders), self._list_places)
        reading = understand(asked, catalog, lambda: self.model)
        wanted, subtracted = split_sentences(reading.terms)
        encode = partial(encode_sentence, model=self.model)
        return explain_score(wanted, self._point(photo), subtracted, self.model, encode)

    def duplicates(
        self, folders: Sequence[str | os.PathLike[str]] = (), exact: bool = False
    ) -> list[DuplicateGroup]:
        """Groups of photos that are the same: equal files and, unless `exact`, copies in another size, format
        or quality.
        """
        from fishermix_photos.index.duplicates import find_duplicates

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
            raise FishermixError("The picture is empty. Send a photo.", code="wrong_file")
        return self._encode_upload(image)[1]

    def keep_photo(self, image: bytes) -> str:
        """Encode a picture that need not be in the library. Returns an id by which queries and the methods of
        photos can name it until 32 others have come.
        """
        return self._encode_upload(image)[0]

    def _encode_upload(self, image: bytes) -> tuple[str, np.ndarray]:
        """The id and the point of a picture; those of the last ones are remembered."""
        self._needed = time.monotonic()
        id = hashlib.sha256(image).hexdigest()[:16]
        point = self._uploads.get(id)
        if point is None:
            point = self.model.encode_images([image])[0]
            with self._uploading:
                self._uploads[id] = point
                if len(self._uploads) > REMEMBERED_UPLOADS:
                    del self._uploads[next(iter(self._uploads))]
        return id, point

    def _point(self, photo: str | np.ndarray) -> np.ndarray:
        """The point (d,) of a photo by its id, or as it was given."""
        if isinstance(photo, str):
            point = self._find_point(photo)
            if point is None:
                raise _unknown(photo)
            return point
        d = self.model.dimension
        if np.shape(photo) != (d,) or not np.isfinite(photo).all():
            raise FishermixError(f"A point must be {d} finite numbers.", code="wrong_shape")
        return np.asarray(photo, np.float32)

    def _find_point(self, photo: str) -> np.ndarray | None:
        if (point := self._uploads.get(photo)) is not None:
            return point
        picture = self._store.pictures([photo]).get(photo)
        if picture is None:
            return None
        self._store.scope((), self.model.key)  # raises if the points are of another model
        return picture.embedding[: self.model.dimension]

    def photo(self, id: str) -> Photo:
        """A photo by its id; raises `UnknownPhoto` if there is none."""
        photos = self._store.find([id])
        if not photos:
            raise _unknown(id)
        return photos[0]

    def count(self, folders: Sequence[str | os.PathLike[str]] = ()) -> int:
        """The number of photos, videos and TIFF files that could be read."""
        return self._store.count(self._store.scope(folders).prefixes)[0]

    def facets(self, folders: Sequence[str | os.PathLike[str]] = ()) -> Facets:
        """The years, folders and kinds of the photos, with their numbers."""
        files = self._store.files(self._store.scope(folders).prefixes)
        return count_facets(files, name_folders(self._store.folders()))

    def topics(self, folders: Sequence[str | os.PathLike[str]] = ()) -> list[str]:
        """Queries that many photos answer; words that the photos are about if there are no probabilities."""
        return self._topics(self._store.scope(folders, self.model.key))

    def _find_topics(self, scope: Scope) -> list[str]:
        from fishermix_photos.model.sentences import find_topics
        from fishermix_photos.search.suggestions import suggest_queries

        self._needed = time.monotonic()
        files = self._store.files(scope.prefixes)
        most = PHOTOS_FOR_TOPICS if self.model.calibration is None else PHOTOS_FOR_SUGGESTIONS
        sample = [id for id, *_ in files[:: max(1, len(files) // most)]]
        embeddings = [picture.embedding for picture in self._store.pictures(sample).values()]
        if not embeddings:
            return []
        photos = np.stack(embeddings)
        with self._loading:
            pool = self._open_pool(None)
        if self.model.calibration is None:
            return find_topics(pool, photos[:, : self.model.dimension])
        return suggest_queries(pool, photos, len(files), self.model.calibration)

    # What takes seconds to load: a search does not wait for it

    def load(self) -> None:
        """Load what a search needs. Networks, captioner and sentences are loaded when they are asked for."""
        self.model.encode_query("a photo")

    def release(self, seconds: float) -> bool:
        """Forget networks, captioner and sentences if nobody has needed them for so long; returns whether
        there was something to forget.
        """
        if time.monotonic() - self._needed < seconds or "_model" not in vars(self):
            return False
        with self._loading:
            has_pool = self._open_pool.cache_info().currsize > 0
            self._open_pool.cache_clear()
            return self.model.release() or has_pool

    def _make_pool(self, sentences: tuple[str, ...] | None) -> SentencePool:
        from fishermix_photos.model.sentences import SentencePool

        return SentencePool(self.model, sentences)


def _unknown(photo: str) -> UnknownPhoto:
    return UnknownPhoto(f"There is no photo '{photo}' in the library.", photo=photo)
