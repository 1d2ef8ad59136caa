"""The HTTP service: a JSON API over one index, and one page that uses it."""

# No `from __future__ import annotations` here: the types of the parameters below depend on the limits given.

from collections.abc import Awaitable, Callable
from mimetypes import guess_type
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from fishermix import __version__
from fishermix.errors import FishermixError
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.photo_files import readable_name
from fishermix.retrieval.store import Hit
from fishermix.server.guards import Guard, Limits, Work
from fishermix.server.metrics import Metrics
from fishermix.server.photos import NotFound, PhotoService

STATIC = Path(__file__).with_name("static")
# How uvicorn is to serve the app: h11 bounds the size of a request's head, the other parser does not.
SERVER: dict[str, Any] = {
    "http": "h11",
    "log_level": "warning",
    "limit_concurrency": 256,
    "timeout_keep_alive": 5,
    "server_header": False,
}
PAGE = {"/": "index.html", "/app.js": "app.js", "/app.css": "app.css", "/icon.svg": "icon.svg"}


class Mistake(BaseModel):
    detail: str


class Photo(BaseModel):
    id: str
    path: str
    score: float


class Found(BaseModel):
    """Photos, best first; those from the score `cut` on stand out from the rest of the folder."""

    photos: list[Photo]
    cut: float | None = None


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
    """`drop` is what the score loses without the word; the components' parts, `rest` and `crowding` add
    up to the score.
    """

    score: float
    words: list[Word]
    components: list[Component]
    rest: float
    hubness: float


class Health(BaseModel):
    status: Literal["ok"]
    version: str
    photos: int
    folder: str
    captions: bool


def _mistakes(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Mistake} for status in statuses}


REFUSALS = _mistakes(400, 403, 421, 503, 504)
UPLOAD = {
    "requestBody": {
        "required": True,
        "description": "The bytes of a photo (JPEG, PNG, WebP, GIF, BMP or TIFF), not a form.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
PhotoId = Annotated[str, Query(pattern="^[0-9a-f]{16}$", description="A photo's id, from a search.")]


def create_app(index: PhotoIndex, sentences: list[str], limits: Limits | None = None) -> FastAPI:
    """The service of one index; `sentences` are those that photos are annotated with."""
    limits = limits or Limits()
    service, metrics, work = PhotoService(index, sentences), Metrics(), Work(limits)
    app = FastAPI(
        title="fishermix",
        version=__version__,
        description="Find and describe the photos of one folder.",
        docs_url=None,  # FastAPI's pages load their code from elsewhere
        redoc_url=None,
        responses=REFUSALS,
    )
    number = Annotated[int, Query(ge=1, le=limits.results, description="At most this many.")]
    text = Annotated[
        str,
        Query(
            min_length=1,
            max_length=limits.query_length,
            description='A sentence; terms combine as in `beach - people` or `photo:ID + "at night"`.',
        ),
    ]

    @app.exception_handler(FishermixError)
    async def mistaken(request: Request, error: FishermixError) -> JSONResponse:
        return JSONResponse({"detail": readable_name(str(error))}, 400)

    @app.exception_handler(NotFound)
    async def missing(request: Request, error: NotFound) -> JSONResponse:
        return JSONResponse({"detail": "there is no such photo in the index"}, 404)

    async def uploaded(request: Request) -> bytes:
        return await request.body()

    upload = Annotated[bytes, Depends(uploaded)]

    @app.get("/api/search")
    async def search(q: text, n: number = 30) -> Found:
        """Photos that a sentence, or a combination of sentences and photos, describes."""

        def answer() -> Found:
            hits, cut = service.search(q, n)
            return _found(hits, cut)

        return await work.run(answer)

    @app.get("/api/similar", responses=_mistakes(404))
    async def similar(id: PhotoId, n: number = 12) -> Found:
        """Photos that look like one of the index."""
        return _found(await work.run(service.similar, id, n))

    @app.post("/api/similar", openapi_extra=UPLOAD, responses=_mistakes(408, 413))
    async def similar_to_upload(data: upload, n: number = 12) -> Found:
        """Photos that look like the one sent."""

        def answer() -> Found:
            return _found(*service.search(service.point_of_upload(data), n))

        return await work.run(answer)

    @app.get("/api/annotate", responses=_mistakes(404))
    async def annotate(id: PhotoId, n: number = 5) -> Sentences:
        """The sentences that fit a photo of the index best."""
        return _sentences(await work.run(lambda: service.sentences(service.point_of_photo(id), n)))

    @app.post("/api/annotate", openapi_extra=UPLOAD, responses=_mistakes(408, 413))
    async def annotate_upload(data: upload, n: number = 5) -> Sentences:
        """The sentences that fit the photo sent best."""
        return _sentences(await work.run(lambda: service.sentences(service.point_of_upload(data), n)))

    @app.get("/api/caption", responses=_mistakes(404))
    async def caption(id: PhotoId) -> Caption:
        """A sentence made for a photo of the index."""
        return Caption(caption=await work.run(lambda: service.caption(service.point_of_photo(id))))

    @app.post("/api/caption", openapi_extra=UPLOAD, responses=_mistakes(408, 413))
    async def caption_upload(data: upload) -> Caption:
        """A sentence made for the photo sent."""
        return Caption(caption=await work.run(lambda: service.caption(service.point_of_upload(data))))

    @app.get("/api/explain", responses=_mistakes(404))
    async def explain(q: text, id: PhotoId) -> Why:
        """Which words, and which components of the mixtures, carried a match."""
        found = await work.run(service.explain, q, id)
        return Why(
            score=found.score,
            words=[Word(word=part.word, drop=part.drop) for part in found.words],
            components=[
                Component(part=part.part, near=part.near, words=part.words) for part in found.components
            ],
            rest=found.rest,
            hubness=found.hubness,
        )

    @app.get(
        "/api/photos/{id}",
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}}, **_mistakes(404)},
    )
    async def photo(id: str, size: Literal["small", "large"] = "small") -> Response:
        """A photo as JPEG, its longest side at most 480 (small) or 1600 pixels."""
        data = await work.run(service.picture, id, size)
        return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=300"})

    @app.get("/api/health")
    async def health() -> Health:
        """Whether the service is well, and what it serves."""
        return Health(
            status="ok",
            version=__version__,
            photos=await run_in_threadpool(service.count),
            folder=readable_name(index.folder.name),
            captions=index.model.captioner is not None,
        )

    @app.get("/api/metrics", response_class=PlainTextResponse)
    async def counters() -> str:
        """Counters in the text format of Prometheus."""
        return metrics.text({"photos": await run_in_threadpool(service.count), "pending": work.pending})

    for path, name in PAGE.items():
        app.add_api_route(path, _static(name), include_in_schema=False)
    app.add_middleware(Guard, limits=limits, metrics=metrics)
    return app


def _static(name: str) -> Callable[[], Awaitable[Response]]:
    """A file of the page, read once."""
    content, kind = (STATIC / name).read_bytes(), guess_type(name)[0]

    async def page() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return page


def _found(hits: list[Hit], cut: float | None = None) -> Found:
    photos = [Photo(id=hit.id, path=readable_name(hit.path), score=hit.score) for hit in hits]
    return Found(photos=photos, cut=cut if cut is not None and cut > float("-inf") else None)


def _sentences(ranked: list[tuple[str, float]]) -> Sentences:
    return Sentences(sentences=[Sentence(sentence=sentence, score=score) for sentence, score in ranked])
