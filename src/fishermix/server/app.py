"""The HTTP server: a JSON API for one index, and one page that uses it."""

# No `from __future__ import annotations` here: the types of the parameters below depend on the limits given.

from collections.abc import Awaitable, Callable, Sequence
from mimetypes import guess_type
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.routing import Match

from fishermix import __version__
from fishermix.errors import FishermixError
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.photo_files import replace_undecodable
from fishermix.retrieval.query import UnknownTerm
from fishermix.retrieval.store import Hit
from fishermix.server.connections import SERVER as SERVER
from fishermix.server.connections import limit_log
from fishermix.server.guards import Guard, Limits, Work
from fishermix.server.metrics import Metrics
from fishermix.server.photos import NotFound, PhotoService

STATIC = Path(__file__).with_name("static")
PAGE = {"/": "index.html", "/app.js": "app.js", "/app.css": "app.css", "/icon.svg": "icon.svg"}


class Mistake(BaseModel):
    detail: str


class Photo(BaseModel):
    id: str
    path: str
    score: float


class Found(BaseModel):
    """Photos, best first. Those with a score of at least `threshold` stand out from the others."""

    photos: list[Photo]
    threshold: float | None = None
    cut: float | None = Field(None, deprecated=True, description="The name of `threshold` in version 0.1.")
    out_of_vocabulary: list[str] = Field([], description="Words of the query that the model ignored.")


class Sentence(BaseModel):
    sentence: str
    score: float


class Sentences(BaseModel):
    sentences: list[Sentence]


class Caption(BaseModel):
    caption: str


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
    out_of_vocabulary: list[str] = Field([], description="Words of the query that the model ignored.")


class Health(BaseModel):
    status: Literal["ok"]
    version: str
    photos: int
    folder: str
    captions: bool


def _describe_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Mistake} for status in statuses}


REFUSALS = _describe_errors(400, 403, 421, 503, 504)
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
PhotoId = Annotated[str, Query(pattern="^[0-9a-f]{16}$", description="A photo's id, from a search.")]


def create_app(index: PhotoIndex, sentences: list[str], limits: Limits | None = None) -> FastAPI:
    """The server of one index; photos are annotated with `sentences`."""
    limits = limits or Limits()
    limit_log()
    service, metrics, work = PhotoService(index, sentences), Metrics(), Work(limits)
    app = FastAPI(
        title="fishermix",
        version=__version__,
        description="Find and describe the photos of one folder.",
        docs_url=None,  # FastAPI's pages load scripts from other sites
        redoc_url=None,
        responses=REFUSALS,
    )
    number = Annotated[int, Query(ge=1, le=limits.results, description="Return at most this many.")]
    text = Annotated[
        str,
        Query(
            min_length=1,
            max_length=limits.query_length,
            pattern=r"\S",
            description='A sentence; terms combine as in `beach - people` or `photo:ID + "at night"`.',
        ),
    ]

    @app.exception_handler(FishermixError)
    async def mistaken(request: Request, error: FishermixError) -> JSONResponse:
        return JSONResponse({"detail": replace_undecodable(str(error))}, 400)

    @app.exception_handler(UnknownTerm)
    async def unknown(request: Request, error: UnknownTerm) -> JSONResponse:
        return JSONResponse({"detail": replace_undecodable(str(error))}, 404)

    @app.exception_handler(405)
    async def not_allowed(request: Request, error: Exception) -> JSONResponse:
        """The `Allow` header lists the methods of all routes with this path, not of the first one."""
        methods = {
            method
            for route in app.routes
            if route.matches(request.scope)[0] is not Match.NONE
            for method in getattr(route, "methods", None) or ()
        }
        headers = {"Allow": ", ".join(sorted(methods))}
        return JSONResponse({"detail": "Method Not Allowed"}, 405, headers=headers)

    @app.exception_handler(NotFound)
    async def missing(request: Request, error: NotFound) -> JSONResponse:
        return JSONResponse({"detail": "There is no such photo in the index."}, 404)

    async def uploaded(request: Request) -> bytes:
        return await request.body()

    upload = Annotated[bytes, Depends(uploaded)]

    @app.get("/api/search", responses=_describe_errors(404))
    async def search(q: text, n: number = 30) -> Found:
        """Find the photos that a sentence, or a combination of sentences and photos, describes."""
        return _make_found(*await work.run(service.search, q, n))

    @app.get("/api/similar", responses=_describe_errors(404))
    async def similar(id: PhotoId, n: number = 12) -> Found:
        """Find photos that are similar to one in the index."""
        return _make_found(await work.run(service.find_similar, id, n))

    @app.post("/api/similar", openapi_extra=UPLOAD, responses=_describe_errors(408, 413))
    async def similar_to_upload(data: upload, n: number = 12) -> Found:
        """Find photos that are similar to the one in the body."""
        return _make_found(*await work.run(lambda: service.search(service.point_of_upload(data), n)))

    @app.get("/api/annotate", responses=_describe_errors(404))
    async def annotate(id: PhotoId, n: number = 5) -> Sentences:
        """Find the sentences with the highest scores for a photo in the index."""
        return _make_sentences(await work.run(lambda: service.rank_sentences(service.point_of_photo(id), n)))

    @app.post("/api/annotate", openapi_extra=UPLOAD, responses=_describe_errors(408, 413))
    async def annotate_upload(data: upload, n: number = 5) -> Sentences:
        """Find the sentences with the highest scores for the photo in the body."""
        return _make_sentences(
            await work.run(lambda: service.rank_sentences(service.point_of_upload(data), n))
        )

    @app.get("/api/caption", responses=_describe_errors(404))
    async def caption(id: PhotoId) -> Caption:
        """Write a sentence for a photo in the index."""
        return Caption(caption=await work.run(lambda: service.caption(service.point_of_photo(id))))

    @app.post("/api/caption", openapi_extra=UPLOAD, responses=_describe_errors(408, 413))
    async def caption_upload(data: upload) -> Caption:
        """Write a sentence for the photo in the body."""
        return Caption(caption=await work.run(lambda: service.caption(service.point_of_upload(data))))

    @app.get("/api/explain", responses=_describe_errors(404))
    async def explain(q: text, id: PhotoId) -> Why:
        """Show how much each word, and each component of the mixtures, contributes to a score."""
        found = await work.run(service.explain, q, id)
        return Why(**found.as_json())

    @app.get(
        "/api/photos/{id}",
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}}, **_describe_errors(404)},
    )
    async def photo(id: str, size: Literal["small", "large"] = "small") -> Response:
        """A photo as JPEG, its longest side at most 480 (small) or 1600 (large) pixels."""
        data = await work.run(service.make_picture, id, size)
        return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=300"})

    @app.get("/api/health")
    async def health() -> Health:
        """Whether the server works, and what it serves."""
        return Health(
            status="ok",
            version=__version__,
            photos=await run_in_threadpool(service.count),
            folder=replace_undecodable(index.folder.name),
            captions=index.model.captioner is not None,
        )

    @app.get("/api/metrics", response_class=PlainTextResponse)
    async def counters() -> str:
        """Counters in the text format of Prometheus."""
        return metrics.text({"photos": await run_in_threadpool(service.count), "pending": work.pending})

    for path, name in PAGE.items():
        app.add_api_route(path, _serve_file(name), include_in_schema=False)
    app.add_middleware(Guard, limits=limits, metrics=metrics)
    return app


def _serve_file(name: str) -> Callable[[], Awaitable[Response]]:
    """A route that serves a file of the page, read once."""
    content, kind = (STATIC / name).read_bytes(), guess_type(name)[0]

    async def page() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return page


def _make_found(hits: list[Hit], threshold: float | None = None, unknown: Sequence[str] = ()) -> Found:
    photos = [Photo(id=hit.id, path=replace_undecodable(hit.path), score=hit.score) for hit in hits]
    if threshold == float("-inf"):
        threshold = None  # JSON has no infinity
    return Found(photos=photos, threshold=threshold, cut=threshold, out_of_vocabulary=list(unknown))


def _make_sentences(ranked: list[tuple[str, float]]) -> Sentences:
    return Sentences(sentences=[Sentence(sentence=sentence, score=score) for sentence, score in ranked])
