"""What the API sends, as the OpenAPI description states it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from fishermix_photos import results
from fishermix_photos.details import find_kind
from fishermix_photos.duplicates import DuplicateGroup
from fishermix_photos.results import replace_undecodable
from fishermix_photos.server.originals import find_type, stat_inside

MOST_GROUPS = 500  # of duplicates in one answer


class PhotoMessage(BaseModel):
    """A photo, a video or a page of a TIFF file; `time` and `page` say which part of the file matched.

    path : from the name of the library's folder on, "Pictures/2019/dog.jpg"
    version : differs when the file has changed
    similar : the ids of near copies, which take no place of their own
    """

    id: str
    path: str
    kind: str = ""
    taken: str | None = None
    place: str | None = None
    width: int | None = None
    height: int | None = None
    version: str = ""
    time: float | None = None
    page: int | None = None
    score: float | None = None
    probability: float | None = None
    band: results.Band | None = None
    similar: list[str] = []


class RemarkMessage(BaseModel):
    """A remark, and the query that it suggests instead."""

    text: str
    query: str | None = None


class FacetCount(BaseModel):
    name: str
    photos: int


class ResultsMessage(BaseModel):
    """`results.Results`; `spelling` says whether unknown words are matched by spelling, or else ignored."""

    photos: list[PhotoMessage]
    more: bool
    total: int | None
    years: list[FacetCount]
    remarks: list[RemarkMessage]
    unknown_words: list[str]
    spelling: bool
    nothing_matches: bool
    verdict: str


class CopyMessage(PhotoMessage):
    bytes: int | None = None


class GroupMessage(BaseModel):
    """Photos of the same picture. The first one has the most pixels and is best kept."""

    exact: bool
    photos: list[CopyMessage]


class DuplicatesMessage(BaseModel):
    """The groups of duplicates, by path, and whether there are more of them."""

    groups: list[GroupMessage]
    more: bool


class FacetsMessage(BaseModel):
    """What the photos can be filtered by."""

    years: list[FacetCount]
    folders: list[FacetCount]
    kinds: list[FacetCount]


class Topics(BaseModel):
    """Words that the photos are about, the most typical first."""

    words: list[str]


class DetailsMessage(PhotoMessage):
    """What is known of a photo. `file` is its full path; only this machine is told."""

    file: str | None = None
    bytes: int | None = None
    camera: str | None = None
    latitude: float | None = None
    longitude: float | None = None
    region: str | None = None
    taken_from: str | None = None
    playable: bool = False


class ScoredSentence(BaseModel):
    sentence: str
    score: float


class Sentences(BaseModel):
    sentences: list[ScoredSentence]


class Caption(BaseModel):
    caption: str
    confidence: float | None = None
    unsure: bool = False


class Health(BaseModel):
    status: Literal["ok"]
    version: str
    photos: int
    folder: str
    captions: bool


class ProgressMessage(BaseModel):
    """What the server is doing. `version` changes whenever photos have been added, changed or removed;
    `problem` says why a folder could not be updated the last time.
    """

    state: Literal["starting", "updating", "ready"]
    message: str
    done: int | None = None
    total: int | None = None
    version: int
    photos: int
    problem: str | None = None


def show_photo(photo: results.Photo) -> dict[str, Any]:
    """The fields of `Photo`."""
    status = stat_inside(photo)
    return {
        "id": photo.id,
        "path": replace_undecodable(photo.name),
        "kind": find_kind(photo.path),
        "taken": photo.details.taken,
        "place": photo.details.place,
        "width": photo.details.width,
        "height": photo.details.height,
        "version": f"{status.st_mtime_ns:x}" if status else "",
        "time": photo.time,
        "page": photo.page,
        "score": photo.score,
        "probability": photo.probability,
        "band": photo.band,
        "similar": list(photo.similar),
    }


def show_details(photo: results.Photo, local: bool) -> DetailsMessage:
    status, details = stat_inside(photo), photo.details
    return DetailsMessage(
        **show_photo(photo),
        file=replace_undecodable(photo.path) if local else None,
        bytes=status.st_size if status else None,
        camera=details.camera,
        latitude=details.latitude,
        longitude=details.longitude,
        region=details.region,
        taken_from=details.taken_from,
        playable=find_type(photo.path) is not None,
    )


def show_results(found: results.Results, spelling: bool = False) -> ResultsMessage:
    return ResultsMessage(
        photos=[PhotoMessage(**show_photo(photo)) for photo in found.photos],
        more=found.more,
        total=found.total,
        years=show_counts(found.years),
        remarks=[RemarkMessage(text=text, query=getattr(text, "query", None)) for text in found.remarks],
        unknown_words=list(found.unknown_words),
        spelling=spelling,
        nothing_matches=found.nothing_matches,
        verdict=found.verdict,
    )


def show_facets(found: results.Facets) -> FacetsMessage:
    return FacetsMessage(
        years=show_counts(found.years), folders=show_counts(found.folders), kinds=show_counts(found.kinds)
    )


def show_counts(counts: tuple[tuple[str, int], ...]) -> list[FacetCount]:
    return [FacetCount(name=replace_undecodable(name), photos=count) for name, count in counts]


def show_duplicates(groups: list[DuplicateGroup]) -> DuplicatesMessage:
    shown = [show_group(group) for group in groups[:MOST_GROUPS]]
    return DuplicatesMessage(groups=shown, more=len(groups) > MOST_GROUPS)


def show_group(group: DuplicateGroup) -> GroupMessage:
    copies = []
    for photo in group.photos:
        status = stat_inside(photo)
        copies.append(CopyMessage(**show_photo(photo), bytes=status.st_size if status else None))
    return GroupMessage(exact=group.is_exact, photos=copies)
