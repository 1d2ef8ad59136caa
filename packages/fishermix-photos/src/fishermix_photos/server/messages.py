"""What the API sends, as the OpenAPI description states it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from fishermix_photos import results
from fishermix_photos.details import find_kind
from fishermix_photos.duplicates import DuplicateGroup
from fishermix_photos.results import replace_undecodable
from fishermix_photos.server.originals import find_type, stat_inside

MOST_GROUPS = 500  # of duplicates in one answer


class Mistake(BaseModel):
    detail: str


class PhotoMessage(BaseModel):
    """A photo, a video or a page of a TIFF file; `time` and `page` say which part of the file matched."""

    id: str
    path: str = Field(description="From the name of the library's folder on: Pictures/2019/dog.jpg.")
    kind: str = Field("", description="The format: JPEG, HEIC, RAW, video and so on.")
    taken: str | None = Field(None, description="Local time, YYYY-MM-DDTHH:MM:SS.")
    place: str | None = Field(None, description='City and country, by GeoNames: "Lima, Peru".')
    width: int | None = None
    height: int | None = None
    version: str = Field("", description="Differs when the file has changed.")
    time: float | None = Field(None, description="The time in a video, in seconds.")
    page: int | None = Field(None, description="The page of a TIFF file, if it is not the first.")
    score: float | None = Field(
        None,
        description="How well the photo matches. Comparable within one query only: unrelated photos usually "
        "score below 0.3, good matches around 0.5. null without a query.",
    )
    probability: float | None = Field(
        None,
        description="The probability, 0 to 1, that the photo is what the query describes. Comparable between "
        "queries. null for queries of photos only, and for models without calibration.",
    )
    band: results.Band | None = Field(
        None,
        description="The probability in words: likely from 0.5 on, maybe from 0.2 on, otherwise unlikely.",
    )
    similar: list[str] = Field(
        default_factory=list, description="The ids of near copies, which take no place of their own."
    )


class RemarkMessage(BaseModel):
    text: str
    query: str | None = Field(None, description="A query that the remark suggests instead.")


class FacetCount(BaseModel):
    name: str
    photos: int


class ResultsMessage(BaseModel):
    """The photos that a search found, or a part of the list without a query."""

    photos: list[PhotoMessage]
    more: bool = Field(description="Whether a larger `offset` gives more photos.")
    total: int | None = Field(
        description="The number of all photos that meet the conditions. null for a search by score."
    )
    years: list[FacetCount] = Field(
        description="The years of a list by date, in its order, with their numbers of photos."
    )
    remarks: list[RemarkMessage] = Field(description="How the query was understood.")
    unknown_words: list[str] = Field(description="Words of the query that the model does not know.")
    spelling: bool = Field(description="Whether unknown words are matched by spelling, or else ignored.")
    nothing_matches: bool = Field(
        description="Whether not one photo is right, which is true nine times out of ten."
    )
    is_understood: bool = Field(description="Whether the model can make something of the query.")
    verdict: str = Field(description="What to say above the photos if all are unlikely; otherwise empty.")


class CopyMessage(PhotoMessage):
    bytes: int | None = None


class GroupMessage(BaseModel):
    """Photos of the same picture. The first one has the most pixels and is best kept."""

    exact: bool = Field(description="Whether the files are equal, byte by byte.")
    photos: list[CopyMessage]


class DuplicatesMessage(BaseModel):
    """The groups of duplicates, by path."""

    groups: list[GroupMessage]
    more: bool = Field(description="Whether there are more groups than these.")


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
    region: str | None = Field(None, description="District, county and state.")
    taken_from: str | None = Field(None, description='"exif", "name", "folder" or "file".')
    playable: bool = Field(False, description="Whether browsers can show the original.")


class ScoredSentence(BaseModel):
    sentence: str
    score: float
    band: results.Band | None = Field(None, description="How sure a search for the sentence is of the photo.")


class Sentences(BaseModel):
    sentences: list[ScoredSentence]


class Caption(BaseModel):
    caption: str
    confidence: float | None = Field(None, description="Probability that the caption is right, if estimated.")
    unsure: bool = False


class Health(BaseModel):
    status: Literal["ok"]
    version: str
    photos: int = Field(description="The number of files: photos, videos and TIFF files.")
    folder: str = Field(description="What is served: the names of the folders.")
    captions: bool = Field(description="Whether the model can write captions.")


class ProgressMessage(BaseModel):
    """What the server is doing. `version` changes whenever photos have been added, changed or removed."""

    state: Literal["starting", "updating", "ready"]
    message: str
    done: int | None = None
    total: int | None = None
    version: int
    photos: int = Field(description="The number of files: photos, videos and TIFF files.")
    problem: str | None = Field(None, description="Why a folder could not be updated the last time.")


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
        is_understood=found.is_understood,
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


def describe_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Mistake} for status in statuses}
