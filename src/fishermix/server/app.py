"""The HTTP server: a JSON API for one folder, and one page that uses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from mimetypes import guess_type
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.concurrency import run_in_threadpool
from starlette.routing import Match

from fishermix import __version__
from fishermix.errors import FishermixError
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.photo_files import replace_undecodable
from fishermix.retrieval.query import UnknownTerm
from fishermix.server.access import Access
from fishermix.server.connections import SERVER as SERVER
from fishermix.server.connections import limit_log
from fishermix.server.guards import Guard, Limits, Work
from fishermix.server.live import LiveFolder, NotReady
from fishermix.server.messages import Health, Progress, describe_errors
from fishermix.server.metrics import Metrics
from fishermix.server.photo_routes import add_photo_routes
from fishermix.server.photos import NotFound
from fishermix.server.reveal import can_reveal
from fishermix.server.search_routes import add_search_routes

STATIC = Path(__file__).with_name("static")
REFUSALS = describe_errors(400, 401, 403, 421, 429, 503, 504)


def create_app(
    source: PhotoIndex | LiveFolder,
    sentences: list[str] | None = None,
    limits: Limits | None = None,
    access: Access | None = None,
) -> FastAPI:
    """The server of one folder: of an index that stays as it is, or of one that follows its folder. Photos of
    an index are annotated with `sentences`, or with the model's.
    """
    limits, access = limits or Limits(), access or Access()
    live = source if isinstance(source, LiveFolder) else LiveFolder.of_index(source, sentences)
    limit_log()
    metrics, work = Metrics(), Work(limits)
    app = FastAPI(
        title="fishermix",
        version=__version__,
        description="Find and describe the photos of one folder.",
        docs_url=None,  # FastAPI's pages load scripts from other sites
        redoc_url=None,
        responses=REFUSALS,
    )
    _add_error_handlers(app)
    add_search_routes(app, live, work, limits)
    add_photo_routes(app, live, work, limits, access)

    @app.get("/api/health")
    async def health() -> Health:
        """Whether the server works, and what it serves."""
        captions = live.is_ready and live.service.model.captioner is not None
        return Health(
            status="ok",
            version=__version__,
            photos=await run_in_threadpool(live.count),
            folder=replace_undecodable(live.name),
            captions=captions,
            reveal=access.local and can_reveal(),
        )

    @app.get("/api/status")
    async def status() -> Progress:
        """What the server is doing, and whether photos have changed."""
        return await run_in_threadpool(live.progress)

    @app.get("/api/metrics", response_class=PlainTextResponse)
    async def counters() -> str:
        """Counters in the text format of Prometheus."""
        return metrics.text({"photos": await run_in_threadpool(live.count), "pending": work.pending})

    for file in sorted(STATIC.iterdir()):
        path = "/" if file.name == "index.html" else f"/{file.name}"
        app.add_api_route(path, _serve_file(file), include_in_schema=False)
    app.add_middleware(Guard, limits=limits, metrics=metrics, access=access)
    return app


def _add_error_handlers(app: FastAPI) -> None:
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

    @app.exception_handler(NotReady)
    async def loading(request: Request, error: NotReady) -> JSONResponse:
        return JSONResponse({"detail": f"The server is starting. {error}"}, 503, {"Retry-After": "1"})


def _serve_file(file: Path) -> Callable[[], Awaitable[Response]]:
    """A route that serves a file of the page, read once."""
    content, kind = file.read_bytes(), guess_type(file.name)[0]

    async def page() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return page
