"""The HTTP server: a JSON API for a photo library, and one page that uses it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from fishermix import __version__
from fishermix.errors import FishermixError

from fishermix_photos.disk import explain_os_error
from fishermix_photos.search.results import UnknownPhoto, replace_undecodable
from fishermix_photos.search.vectors import UnknownTerm
from fishermix_photos.server import changes
from fishermix_photos.server.access import Access, Rights
from fishermix_photos.server.guards import Guard, Limits, Work, find_port
from fishermix_photos.server.live import LiveLibrary, NotReady, Progress
from fishermix_photos.server.originals import Uploads
from fishermix_photos.server.routes import Site, router

STATIC = Path(__file__).with_name("static")
# FastAPI passes requests on to OpenTelemetry if the environment says so.
NO_TELEMETRY = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)


@dataclass(frozen=True, kw_only=True)
class Status(Progress):
    """What the server is doing.

    changes : whether this client may add folders and copy files
    """

    changes: Rights


def create_app(live: LiveLibrary, limits: Limits | None = None, access: Access | None = None) -> FastAPI:
    """The server of a library, or of some of its folders."""
    limits, access = limits or Limits(), access or Access()
    app = FastAPI(
        title="fishermix",
        version=__version__,
        description="Find and describe photos.",
        docs_url=None,  # FastAPI's pages load scripts from other sites
        redoc_url=None,
        telemetry=NO_TELEMETRY,  # type: ignore[arg-type]
    )
    app.state.site = Site(live, Work(limits), asyncio.Semaphore(limits.downloads), access, Uploads())
    app.include_router(router)
    app.include_router(changes.router)
    _add_error_handlers(app)

    @app.get("/api/status")
    def status(request: Request) -> Status:
        """What the server serves, what it is doing, and whether photos have changed."""
        progress = live.progress()
        problem = progress.problem and access.show(progress.problem, live.places())
        rights = access.find_rights(request.headers, find_port(request.scope))
        return Status(**{**vars(progress), "problem": problem, "changes": rights})

    app.mount("/", StaticFiles(directory=STATIC, html=True))
    app.add_middleware(Guard, limits=limits, access=access)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(FishermixError)
    async def mistaken(request: Request, error: FishermixError) -> JSONResponse:
        site = request.app.state.site
        detail = "There is no such photo in the library."
        if not isinstance(error, UnknownPhoto):
            detail = str(error) if site.access.local else site.access.show(str(error), site.live.places())
        status = 404 if isinstance(error, UnknownPhoto | UnknownTerm) else 400
        return JSONResponse({"detail": replace_undecodable(detail)}, status)

    @app.exception_handler(OSError)
    async def failed(request: Request, error: OSError) -> JSONResponse:
        return JSONResponse({"detail": explain_os_error(error)}, 503, {"Retry-After": "2"})

    @app.exception_handler(NotReady)
    async def loading(request: Request, error: NotReady) -> JSONResponse:
        return JSONResponse({"detail": f"The server is starting. {error}"}, 503, {"Retry-After": "1"})
