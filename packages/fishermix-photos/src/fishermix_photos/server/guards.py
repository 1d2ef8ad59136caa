"""The guards of the server: who may send requests, how large, for how long, and what a browser may do.

The server is for its user only, but every web page that this user opens can send requests to it. So the
`Host` must be this machine (against DNS rebinding), requests from other sites are refused, and every response
forbids the browser to load, run or frame anything from other sites. `access.py` has the rules for a network.

A body costs memory from its first byte until its request is answered. All of them together stay within
`Limits.upload_bytes`; what would exceed it gets status 503. Only bytes that have arrived count, so clients
that send slowly, or nothing after the head, take nothing away from others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fishermix_photos.server.access import SIGN_IN, SIGNED_IN, Access

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob:; media-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Limits:
    """Limits of what one client can cost."""

    body_bytes: int = 25_000_000
    body_seconds: float = 15.0
    upload_bytes: int = 100_000_000
    work_seconds: float = 30.0
    workers: int = 2
    waiting: int = 64
    downloads: int = 16

    def explain_size(self) -> str:
        return f"The body is larger than {self.body_bytes:,} bytes. Send a smaller photo."


class Refused(Exception):
    """A request that gets this response. The rest of its body is not read, so the connection ends."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None, page: str = ""):
        headers = {"Connection": "close", **(headers or {})}
        self.response: Response = JSONResponse({"detail": detail}, status, headers)
        if page:
            self.response = HTMLResponse(page, status, headers)


class Guard:
    """The outermost layer of the server."""

    def __init__(self, app: ASGIApp, limits: Limits, access: Access):
        self.app, self.limits, self.access = app, limits, access
        self.uploaded = 0  # bytes of bodies in memory; changed by the event loop's thread only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        status = 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        body = Body(self, receive)
        try:
            self._check(scope)
            await self.app(scope, body.receive, send_guarded)
        except Refused as refused:
            if not status:
                await refused.response(scope, receive, send_guarded)
        except (ClientDisconnect, asyncio.CancelledError):
            pass  # nobody is left to be answered, or the server ends
        finally:
            self.uploaded -= body.size

    def check_uploads(self, expected: int = 0) -> None:
        """Raise if all bodies together, with what is expected, are too large."""
        if self.uploaded + expected > self.limits.upload_bytes:
            raise Refused(503, "Too many uploads at once. Try again in a moment.", {"Retry-After": "2"})

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self.access.allows_host(host):
            raise Refused(421, "This server responds only to the addresses and names of its machine.")
        origin = headers.get("origin")
        if origin not in (None, f"{scope['scheme']}://{host}"):
            raise Refused(403, "Requests from other sites are refused.")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            raise Refused(403, "Requests from other sites are refused.")
        self._check_token(scope, headers)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.body_bytes:
            raise Refused(413, self.limits.explain_size())
        self.check_uploads(int(length))

    def _check_token(self, scope: Scope, headers: Headers) -> None:
        """Raise unless the request may pass. The link signs in, once it is opened."""
        port = find_port(scope)
        link = QueryParams(scope["query_string"]).get("token") if scope["path"] == "/" else None
        if link and self.access.accepts_token(link):
            cookie = self.access.make_cookie(port)
            raise Refused(
                status=200,
                detail="",
                headers={"Set-Cookie": cookie, "Cache-Control": "no-store"},
                page=SIGNED_IN,
            )
        if not self.access.is_closed or self.access.knows(headers, port):
            return
        page = SIGN_IN if "text/html" in headers.get("accept", "") else ""
        detail = "Sign in with the link that `fishermix serve` shows in its terminal."
        raise Refused(status=401, detail=detail, headers={"WWW-Authenticate": "Bearer"}, page=page)


def find_port(scope: Scope) -> int:
    """The port of the server that a request came to."""
    return (scope.get("server") or ("", 0))[1] or 0


class Body:
    """Limits the size of a request's body while it arrives, and the time that it may take."""

    def __init__(self, guard: Guard, receive: Receive):
        self.size = 0
        self._guard = guard
        self._limits = guard.limits
        self._receive = receive
        self._deadline = time.monotonic() + guard.limits.body_seconds
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._deadline - time.monotonic()))
        except TimeoutError:
            raise Refused(408, "The body took too long to arrive.") from None
        if message["type"] == "http.request":
            arrived = len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            self.size += arrived
            self._guard.uploaded += arrived
            self._guard.check_uploads()
            if self.size > self._limits.body_bytes:
                raise Refused(413, self._limits.explain_size())
        return message


class Work:
    """Runs computations in a few threads; refuses requests when too many wait or one takes too long."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.pending = 0
        self._slots = asyncio.Semaphore(limits.workers)

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.pending >= self.limits.workers + self.limits.waiting:
            raise HTTPException(
                503, "Too many requests at once. Try again in a moment.", {"Retry-After": "1"}
            )
        self.pending += 1
        begun = asyncio.Event()
        task = asyncio.ensure_future(self._in_a_slot(begun, function, arguments))
        task.add_done_callback(self._finished)
        try:
            # A thread cannot be stopped: the client gets an error, the slot is free when the thread is done.
            return await asyncio.wait_for(asyncio.shield(task), self.limits.work_seconds)
        except TimeoutError:
            if not begun.is_set():
                task.cancel()  # it has not started, and nobody waits for it
            raise HTTPException(
                504, "The request took too long. Try again, or send a smaller photo."
            ) from None

    async def _in_a_slot(self, begun: asyncio.Event, function: Callable[..., Any], arguments: tuple) -> Any:
        async with self._slots:
            begun.set()
            return await run_in_threadpool(function, *arguments)

    def _finished(self, task: asyncio.Future) -> None:
        self.pending -= 1
        if not task.cancelled():
            task.exception()  # read it, so that asyncio does not report an exception that nobody waits for
