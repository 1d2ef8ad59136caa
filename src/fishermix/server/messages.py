"""What the API sends, as the OpenAPI description states it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class Mistake(BaseModel):
    detail: str


class Item(BaseModel):
    """A photo, a video or a page of a TIFF file; `time` and `page` say which part of the file matched."""

    id: str
    path: str = Field(description="Relative to the folder.")
    kind: str = Field("", description="The format: JPEG, HEIC, RAW, video and so on.")
    taken: str | None = Field(None, description="Local time, YYYY-MM-DDTHH:MM:SS.")
    width: int | None = None
    height: int | None = None
    version: str = Field("", description="Differs when the file has changed.")
    time: float | None = Field(None, description="The time in a video, in seconds.")
    page: int | None = Field(None, description="The page of a TIFF file, if it is not the first.")


class Photo(Item):
    score: float = Field(
        description="How well the photo matches. Comparable within one query only: unrelated photos usually "
        "score below 0.3, good matches around 0.5."
    )
    probability: float | None = Field(
        None,
        description="The probability, 0 to 1, that the photo is what the query describes. Comparable between "
        "queries. null for queries of photos only, and for models without calibration.",
    )
    likelihood: Literal["likely", "maybe", "unlikely"] | None = Field(
        None,
        description="The probability in words: likely from 0.5 on, maybe from 0.2 on, otherwise unlikely.",
    )


class Found(BaseModel):
    """The photos that a search found, best first, and how the query was understood."""

    photos: list[Photo]
    threshold: float | None = Field(
        None,
        description="Photos with at least this score may be right: their probability is 0.2 or more. Without "
        "probabilities, they stand out from the others. null if no score separates them, for example because "
        "no word of the query is known: then `likelihood` tells.",
    )
    cut: float | None = Field(None, deprecated=True, description="The name of `threshold` in version 0.1.")
    out_of_vocabulary: list[str] = Field([], description="Words of the query that the model does not know.")
    guessed: bool = Field(
        False,
        description="Whether the words in `out_of_vocabulary` were guessed from their letters. false: they "
        "were ignored, or there are none.",
    )
    remarks: list[str] = Field([], description="How the query was understood.")
    more: bool = Field(False, description="Whether a larger `offset` gives more photos.")


class Listed(BaseModel):
    """Photos without a query; `total` is the number of all that meet the conditions."""

    photos: list[Item]
    total: int
    more: bool


class Count(BaseModel):
    name: str
    photos: int


class Facets(BaseModel):
    """What the photos of the folder can be filtered by."""

    years: list[Count]
    folders: list[Count]
    kinds: list[Count]


class Topics(BaseModel):
    """Words that the photos of this folder are about, the most typical first."""

    words: list[str]


class Details(Item):
    """What is known of a photo. `file` is its full path; only this machine is told."""

    file: str | None = None
    bytes: int | None = None
    camera: str | None = None
    latitude: float | None = None
    longitude: float | None = None
    taken_from: str | None = Field(None, description='"exif", "name" or "file".')
    playable: bool = Field(False, description="Whether browsers can show the original.")


class Sentence(BaseModel):
    sentence: str
    score: float


class Sentences(BaseModel):
    sentences: list[Sentence]


class Caption(BaseModel):
    caption: str
    confidence: float | None = Field(
        None, description="How probable the caption is right, if the model says."
    )
    unsure: bool = False


class Word(BaseModel):
    word: str
    drop: float


class Component(BaseModel):
    part: float
    near: list[str]
    words: list[str]


class Why(BaseModel):
    """`drop` is what the score would lose without the word. The parts of the components, `rest` and `hubness`
    add up to the score.
    """

    score: float
    words: list[Word]
    components: list[Component]
    rest: float
    transformer: float = Field(0.0, description="What the sentence transformer contributes to the score.")
    hubness: float
    crowding: float = Field(deprecated=True, description="The name of `hubness` in version 0.1.")
    out_of_vocabulary: list[str] = Field([], description="Words of the query that the model does not know.")
    subtracted: list[Sentence] = Field(
        [],
        description="The sentences that the query subtracts, with their own scores, which are no part of "
        "`score`.",
    )


class Health(BaseModel):
    status: Literal["ok"]
    version: str
    photos: int = Field(description="The number of files: photos, videos and TIFF files.")
    folder: str
    captions: bool
    reveal: bool = Field(False, description="Whether `reveal` can show a photo in the file manager.")


class Progress(BaseModel):
    """What the server is doing. `version` grows whenever photos have been added, changed or removed."""

    state: Literal["starting", "updating", "ready"]
    message: str
    done: int | None = None
    total: int | None = None
    version: int
    photos: int = Field(description="The number of files: photos, videos and TIFF files.")
    problem: str | None = Field(None, description="Why the folder could not be read the last time.")


def describe_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Mistake} for status in statuses}


KINDS = ("image/jpeg", "image/png", "image/webp", "image/gif")
UPLOAD = {
    "requestBody": {
        "required": True,
        "description": "The bytes of a photo, not a form. The content decides: BMP, TIFF and other content "
        "types are accepted as well. Status 400: the body is empty or cannot be decoded.",
        "content": {
            kind: {"schema": {"type": "string", "format": "binary", "minLength": 1}} for kind in KINDS
        },
    }
}
