"""What the API sends, where it differs from what the library answers."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from fishermix_photos.index.duplicates import DuplicateGroup, Reason
from fishermix_photos.index.photo import Band, Photo, replace_undecodable
from fishermix_photos.photos.details import Details, find_kind
from fishermix_photos.search.facets import FacetCount
from fishermix_photos.search.notes import Note
from fishermix_photos.search.results import Results
from fishermix_photos.server.originals import find_inside, find_type

MOST_GROUPS = 500  # of duplicates in one answer


@dataclass(frozen=True, kw_only=True)
class PhotoMessage(Details):
    """A photo, a video or a page of a TIFF file; `time` and `page` say which part of the file matched.

    path : from the name of the library's folder on, "Pictures/2019/dog.jpg"
    file : the full path, if one photo is asked for; only this machine is told
    version : differs when the file has changed
    playable : whether browsers show the file itself
    similar : the ids of near copies, which take no place of their own
    text : an excerpt of the text in the photo, if the search looked for it
    """

    id: str
    path: str
    file: str | None
    kind: str
    bytes: int | None
    version: str
    playable: bool
    time: float | None
    page: int | None
    score: float | None
    probability: float | None
    band: Band | None
    similar: tuple[str, ...]
    text: str | None


class ResultsMessage(BaseModel):
    """What a search found."""

    photos: list[PhotoMessage]
    more: bool
    total: int | None
    years: tuple[FacetCount, ...]
    notes: tuple[Note, ...]
    nothing_matches: bool
    verdict: str


class GroupMessage(BaseModel):
    """Photos of the same picture. The first one is best kept; `reason` is what tells it from the second."""

    exact: bool
    reason: Reason | None
    photos: list[PhotoMessage]


class DuplicatesMessage(BaseModel):
    """The groups of duplicates, by path, and whether there are more of them."""

    groups: list[GroupMessage]
    more: bool


def show_photo(photo: Photo, with_file: bool = False) -> PhotoMessage:
    found = find_inside(photo)
    status = found and found[1]
    return PhotoMessage(
        **vars(photo.details),
        id=photo.id,
        path=replace_undecodable(photo.name),
        file=replace_undecodable(photo.path) if with_file else None,
        kind=find_kind(photo.path),
        bytes=status.st_size if status else None,
        version=f"{status.st_mtime_ns:x}" if status else "",
        playable=find_type(photo.path) is not None,
        time=photo.time,
        page=photo.page,
        score=photo.score,
        probability=photo.probability,
        band=photo.band,
        similar=tuple(copy.id for copy in photo.similar),
        text=photo.text,
    )


def show_results(found: Results) -> ResultsMessage:
    return ResultsMessage(
        photos=[show_photo(photo) for photo in found.photos],
        more=found.more,
        total=found.total,
        years=found.years,
        notes=found.notes,
        nothing_matches=found.nothing_matches,
        verdict=found.verdict,
    )


def show_duplicates(groups: list[DuplicateGroup]) -> DuplicatesMessage:
    shown = [
        GroupMessage(
            exact=group.is_exact,
            reason=group.reason,
            photos=[show_photo(photo) for photo in group.photos],
        )
        for group in groups[:MOST_GROUPS]
    ]
    return DuplicatesMessage(groups=shown, more=len(groups) > MOST_GROUPS)
