"""What is asked of a photo library and what it answers: plain values for commands, pages and programs.

All that a library answers can be imported from here: `X as X` exports a name that another module defines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fishermix.errors import FishermixError

from fishermix_photos.index.changes import Changes as Changes
from fishermix_photos.index.errors import FolderAway as FolderAway
from fishermix_photos.index.errors import LibraryBusy as LibraryBusy
from fishermix_photos.index.errors import LibraryDamaged as LibraryDamaged
from fishermix_photos.index.errors import OtherModel as OtherModel
from fishermix_photos.index.errors import OtherVersion as OtherVersion
from fishermix_photos.index.filters import NO_FILTER, Filter
from fishermix_photos.index.photo import Band as Band
from fishermix_photos.index.photo import Photo as Photo
from fishermix_photos.index.photo import replace_undecodable as replace_undecodable
from fishermix_photos.search.facets import FacetCount
from fishermix_photos.search.facets import Facets as Facets
from fishermix_photos.search.notes import Note
from fishermix_photos.search.terms import Term

Sort = Literal["score", "date", "oldest", "name"]
MOST_THUMBNAILS, THUMBNAIL_SIDE = 24, 160  # of results in a notebook


class NotInLibrary(FishermixError):
    """The library has no such folder; `values["covering"]` is the one that contains it, if any."""

    code = "not_in_library"


class UnknownPhoto(FishermixError):
    """The library has no photo with this id."""

    code = "unknown_photo"


@dataclass(frozen=True)
class Query:
    """What a search looks for.

    Parameters
    ----------
    terms : tuple of Term
        Sentences and photos, see `parse_query`.
    folders : tuple of Path
        Only photos below one of these folders. Empty: the whole library.
    filter : Filter
        Only photos that meet its conditions.
    sort : {"score", "date", "oldest", "name"}
        Best first; or newest first, oldest first, by name. In a search, the last three show only likely
        photos and maybes, or the best ones if there are none.
    n : int
        At most this many photos.
    offset : int
        Skip this many photos.
    min_probability : float, optional
        Only photos with at least this probability. If there are no probabilities (a query of photos, a model
        without calibration): only photos with unusually high scores.
    min_score : float, optional
        Only photos with at least this score.
    merge_copies : bool
        Whether near copies of one picture take one place if the best come first: see `Photo.similar`. Without
        it, every file has a place of its own.

    See Also
    --------
    fishermix_photos.search.terms.parse_query : makes terms of a line.
    fishermix_photos.PhotoLibrary.search : answers a query.

    Examples
    --------
    >>> from fishermix_photos.index.filters import Filter
    >>> from fishermix_photos.search.terms import parse_query
    >>> query = Query(parse_query("beach - people"), filter=Filter(after="2019"), n=20)
    >>> len(query.terms)
    2
    """

    terms: tuple[Term, ...] = ()
    folders: tuple[Path, ...] = ()
    filter: Filter = NO_FILTER
    sort: Sort = "score"
    n: int = 10
    offset: int = 0
    min_probability: float | None = None
    min_score: float | None = None
    merge_copies: bool = True


@dataclass(frozen=True)
class Results:
    """What a search found; a notebook shows it as thumbnails.

    Parameters
    ----------
    photos
        In the order of the query.
    more
        Whether there are photos after these.
    total
        The number of all photos that match, if they were listed without a query.
    years
        Those of a list by date, in its order, and the number of photos of each.
    notes
        How the query was understood.
    unknown_words
        The words of the query that are out of the model's vocabulary.
    nothing_matches
        Whether not one photo is right, which is true 19 times out of 20. If this is False and all
        photos are unlikely, the search is not sure.
    is_understood
        Whether the model can make something of the query. If not, all photos are unlikely.
    verdict
        What to say above the photos if not one of them is likely; otherwise empty.
    """

    photos: tuple[Photo, ...] = ()
    more: bool = False
    total: int | None = None
    years: tuple[FacetCount, ...] = ()
    notes: tuple[Note, ...] = ()
    unknown_words: tuple[str, ...] = ()
    nothing_matches: bool = False
    is_understood: bool = True
    verdict: str = ""

    def _repr_html_(self) -> str:
        from html import escape

        from fishermix_photos.contact_sheet import show_picture

        cards = []
        for photo in self.photos[:MOST_THUMBNAILS]:
            score = "" if photo.score is None else f"{photo.score:.3f}<br>"
            picture = show_picture(photo.picture, THUMBNAIL_SIDE)
            text = f"{score}{escape(replace_undecodable(photo.relative))}"
            cards.append(f'<div style="max-width: {THUMBNAIL_SIDE}px">{picture}<br>{text}</div>')
        hidden = len(self.photos) - len(cards)
        rest = f"<p>and {hidden:,} more</p>" if hidden else ""
        return f'<div style="display: flex; flex-wrap: wrap; gap: 1em">{"".join(cards)}</div>{rest}'


@dataclass(frozen=True)
class FolderStatus:
    """What the library has of a folder.

    photos : the number of files that could be read
    exists : whether the folder is there now
    unreadable : why files could not be read, by absolute path
    skipped : the number of files, by suffix, that look like photos and are not read; only of `status`
    remarks : sentences about files and folders that are left out; only of `status`
    """

    folder: Path
    photos: int
    exists: bool
    unreadable: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """How much a library holds.

    photos : the number of files that could be read: photos, videos and TIFF files
    contents : the number of pictures that differ
    pictures : the number of photos, video frames and TIFF pages
    model_key : identifies the model
    dimension : the length of a stored vector
    bytes : the size of the files of the library
    """

    photos: int
    contents: int
    pictures: int
    model_key: str
    dimension: int
    bytes: int
