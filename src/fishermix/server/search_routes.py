"""The routes that find and describe photos, with and without a query."""

# No `from __future__ import annotations` here: the types of the parameters below depend on the limits given.

from itertools import zip_longest
from typing import Annotated, Literal

from fastapi import Depends, FastAPI, Query, Request

from fishermix.model.calibration import HIGHER_THAN_ANY_SCORE
from fishermix.retrieval.index import LIKELY, MAYBE
from fishermix.retrieval.photo_files import replace_undecodable
from fishermix.server.catalog import PageFilter
from fishermix.server.guards import Limits, Work
from fishermix.server.live import LiveFolder
from fishermix.server.messages import (
    UPLOAD,
    Caption,
    Count,
    Facets,
    Found,
    Item,
    Listed,
    Photo,
    Sentence,
    Sentences,
    Topics,
    Why,
    describe_errors,
)
from fishermix.server.photo_routes import PhotoId, describe_item, make_caption
from fishermix.server.photos import Answer, PhotoService
from fishermix.vision.formats import FORMATS

# A year, a month or a day that exists: February 29 in leap years only.
DAY = (
    r"^((19|20)[0-9]{2}(-(0[1-9]|1[0-2]))?"
    r"|(19|20)[0-9]{2}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    r"|(19(0[48]|[2468][048]|[13579][26])|20([02468][048]|[13579][26]))-02-29)$"
)
KINDS = [one.name for one in FORMATS]
SortFound = Annotated[
    Literal["score", "date"],
    Query(description="Best first; or those that may be right, newest first."),
]
SortAll = Annotated[
    Literal["date", "oldest", "name"], Query(description="Newest first, oldest first, by path.")
]


def make_filter(
    after: Annotated[str | None, Query(pattern=DAY, description="Taken on this day or later.")] = None,
    before: Annotated[str | None, Query(pattern=DAY, description="Taken before this day.")] = None,
    folder: Annotated[
        str | None,
        Query(
            alias="in",
            min_length=1,
            max_length=500,
            pattern=r"^/|[^/ ]",
            description="In folders of this name or path; /2019/Holidays is one folder only.",
        ),
    ] = None,
    kind: Annotated[
        str | None, Query(pattern=f"^({'|'.join(KINDS)})$", description="Files of this format.")
    ] = None,
    shape: Literal["portrait", "landscape"] | None = None,
) -> PageFilter:
    """The conditions that photos must meet."""
    place = folder if folder and folder.startswith("/") else None
    name = None if place else folder
    return PageFilter(after, before, name, shape=shape, kind=kind, place=place)


Conditions = Annotated[PageFilter, Depends(make_filter)]


def add_search_routes(app: FastAPI, live: LiveFolder, work: Work, limits: Limits) -> None:
    number = Annotated[int, Query(ge=1, le=limits.results, description="Return at most this many.")]
    skipped = Annotated[int, Query(ge=0, le=limits.offset, description="Skip this many photos.")]
    text = Annotated[
        str,
        Query(
            min_length=1,
            max_length=limits.query_length,
            pattern=r"\S",
            description='A sentence; terms combine as in `beach - people` or `photo:ID + "at night"`.',
        ),
    ]

    async def uploaded(request: Request) -> bytes:
        return await request.body()

    upload = Annotated[bytes, Depends(uploaded)]

    @app.get("/api/search", responses=describe_errors(404))
    async def search(
        q: text, only: Conditions, n: number = 30, offset: skipped = 0, sort: SortFound = "score"
    ) -> Found:
        """Find the photos that a sentence, or a combination of sentences and photos, describes."""
        service = live.service
        answer = await work.run(service.search, q, n, offset, only, sort == "date")
        return _make_found(service, answer, bool(getattr(service.model, "reads_unknown_words", False)))

    @app.get("/api/browse")
    async def browse(
        only: Conditions,
        n: number = 60,
        offset: Annotated[int, Query(ge=0, le=100_000_000, description="Skip this many photos.")] = 0,
        sort: SortAll = "date",
    ) -> Listed:
        """List photos without a query."""
        service = live.service
        page, total = await work.run(service.browse, only, sort, n, offset)
        return Listed(
            photos=[Item(**describe_item(service, *one)) for one in page],
            total=total,
            more=offset + n < total,
        )

    @app.get("/api/facets")
    async def facets() -> Facets:
        """The years, folders and kinds of the photos, with their numbers."""
        catalog = live.service.catalog
        years, folders, kinds = await work.run(
            lambda: (catalog.count_years(), catalog.count_folders(), catalog.count_kinds())
        )
        return Facets(years=_make_counts(years), folders=_make_counts(folders), kinds=_make_counts(kinds))

    @app.get("/api/topics")
    async def topics() -> Topics:
        """Words that the photos of this folder are about."""
        return Topics(words=await work.run(live.service.find_topics))

    @app.get("/api/similar", responses=describe_errors(404))
    async def similar(id: PhotoId, n: number = 12) -> Found:
        """Find photos that are similar to one in the index."""
        return _make_found(live.service, await work.run(live.service.find_similar, id, n))

    @app.post("/api/similar", openapi_extra=UPLOAD, responses=describe_errors(408, 413))
    async def similar_to_upload(data: upload, n: number = 12) -> Found:
        """Find photos that are similar to the one in the body."""
        service = live.service
        return _make_found(service, await work.run(lambda: service.search(service.point_of_upload(data), n)))

    @app.get("/api/annotate", responses=describe_errors(404))
    async def annotate(id: PhotoId, n: number = 5) -> Sentences:
        """Find the sentences with the highest scores for a photo in the index."""
        service = live.service
        return _make_sentences(await work.run(lambda: service.rank_sentences(service.point_of_photo(id), n)))

    @app.post("/api/annotate", openapi_extra=UPLOAD, responses=describe_errors(408, 413))
    async def annotate_upload(data: upload, n: number = 5) -> Sentences:
        """Find the sentences with the highest scores for the photo in the body."""
        service = live.service
        return _make_sentences(
            await work.run(lambda: service.rank_sentences(service.point_of_upload(data), n))
        )

    @app.get("/api/caption", responses=describe_errors(404))
    async def caption(id: PhotoId) -> Caption:
        """Write a sentence for a photo in the index."""
        service = live.service
        return make_caption(await work.run(lambda: service.describe(service.point_of_photo(id))))

    @app.post("/api/caption", openapi_extra=UPLOAD, responses=describe_errors(408, 413))
    async def caption_upload(data: upload) -> Caption:
        """Write a sentence for the photo in the body."""
        service = live.service
        return make_caption(await work.run(lambda: service.describe(service.point_of_upload(data))))

    @app.get("/api/explain", responses=describe_errors(404))
    async def explain(q: text, id: PhotoId) -> Why:
        """Show how much each word, and each component of the mixtures, contributes to a score."""
        found = await work.run(live.service.explain, q, id)
        return Why(**found.as_json())


def _make_found(service: PhotoService, answer: Answer, guessed: bool = False) -> Found:
    photos = [
        Photo(
            **describe_item(service, hit.id, hit.path, answer.details.get(hit.path)),
            score=hit.score,
            probability=None if chance is None else round(chance, 4),
            likelihood=None if chance is None else _name_likelihood(chance),
        )
        for hit, chance in zip_longest(answer.hits, answer.probabilities)
    ]
    threshold = answer.threshold
    if threshold is not None and not abs(threshold) < HIGHER_THAN_ANY_SCORE:
        threshold = None  # all photos, or none, have such a score
    return Found(
        photos=photos,
        threshold=threshold,
        cut=threshold,
        out_of_vocabulary=list(answer.out_of_vocabulary),
        guessed=guessed and bool(answer.out_of_vocabulary),
        remarks=list(answer.remarks),
        more=answer.more,
    )


def _name_likelihood(probability: float) -> Literal["likely", "maybe", "unlikely"]:
    return "likely" if probability >= LIKELY else "maybe" if probability >= MAYBE else "unlikely"


def _make_sentences(ranked: list[tuple[str, float]]) -> Sentences:
    return Sentences(sentences=[Sentence(sentence=sentence, score=score) for sentence, score in ranked])


def _make_counts(counts: list[tuple[str, int]]) -> list[Count]:
    return [Count(name=replace_undecodable(name), photos=count) for name, count in counts]
