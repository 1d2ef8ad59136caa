"""The guards of the server: who may send requests, how large, for how long, and what a browser may do.

The server is for its user only, but every web page that this user opens can send requests to it. So the
`Host` must be this machine (against DNS rebinding), requests from other sites are refused, and every response
forbids the browser to load, run or frame anything from other sites. `access.py` has the rules for a network.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fishermix.server.access import SIGN_IN, SIGNED_IN, Access, find_token
from fishermix.server.metrics import Metrics

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
    work_seconds: float = 30.0
    workers: int = 2
    waiting: int = 64
    results: int = 200
    query_length: int = 500
    offset: int = 10_000
    export: int = 1000
    downloads: int = 16


class Refused(Exception):
    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None, page: str = ""):
        self.status, self.detail, self.headers, self.page = status, detail, headers or {}, page


class Guard:
    """The outermost layer of the server."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics, access: Access):
        self.app, self.limits, self.metrics, self.access = app, limits, metrics, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        status, start = 0, time.perf_counter()

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_encode_headers(HEADERS)]
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, self._limit_body(receive), send_guarded)
        except Refused as refused:
            if not status:
                await _send_error(send_guarded, refused)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.count(route, status, time.perf_counter() - start)

    def _check(self, scope: Scope) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        headers["cookie"] = _join_cookies(scope)
        host = headers.get("host", "")
        if not self.access.allows_host(host):
            raise Refused(421, "This server responds only to 127.0.0.1 and localhost.")
        origin = headers.get("origin")
        if origin not in (None, f"{scope['scheme']}://{host}"):
            raise Refused(403, "Requests from other sites are refused.")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            raise Refused(403, "Requests from other sites are refused.")
        if self.access.token is not None:
            self._check_token(scope, headers)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.body_bytes:
            raise Refused(413, self._too_large())

    def _check_token(self, scope: Scope, headers: dict[str, str]) -> None:
        """Raise unless the request carries the cookie or the token. The link signs in, once it is opened."""
        address, port = (scope.get("client") or ("",))[0], (scope.get("server") or ("", 0))[1]
        if not self.access.allows_rate(address):
            raise Refused(429, "Too many requests. Wait a few seconds.", {"Retry-After": "2"})
        if self.access.accepts_cookie(headers.get("cookie", ""), port):
            return
        link = find_token(scope["query_string"]) if scope["path"] == "/" else None
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if link or bearer:
            if not self.access.has_tries_left(address):
                raise Refused(429, "Too many wrong tokens. Wait a minute.", {"Retry-After": "60"})
            if self.access.accepts_token(link or bearer, address):
                if not link:
                    return
                cookie = self.access.make_cookie(port, scope["scheme"] == "https")
                raise Refused(200, "", {"Set-Cookie": cookie, "Cache-Control": "no-store"}, SIGNED_IN)
        page = SIGN_IN if "text/html" in headers.get("accept", "") else ""
        detail = "Sign in with the link that `fishermix serve` shows in its terminal."
        raise Refused(401, detail, {"WWW-Authenticate": "Bearer"}, page)

    def _too_large(self) -> str:
        return f"The body is larger than {self.limits.body_bytes:,} bytes. Send a smaller photo."

    def _limit_body(self, receive: Receive) -> Receive:
        """Limit the size of the body while it arrives, and the time that it may take."""
        deadline, size, complete = time.monotonic() + self.limits.body_seconds, 0, False

        async def counted() -> Message:
            nonlocal size, complete
            if complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise Refused(408, "The body took too long to arrive.") from None
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if size > self.limits.body_bytes:
                    raise Refused(413, self._too_large())
            return message

        return counted


def _join_cookies(scope: Scope) -> str:
    """All `Cookie` headers as one: browsers and proxies may send several."""
    return "; ".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie")


def _encode_headers(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


async def _send_error(send: Send, refused: Refused) -> None:
    body = refused.page.encode() if refused.page else json.dumps({"detail": refused.detail}).encode()
    kind = "text/html; charset=utf-8" if refused.page else "application/json"
    # The rest of a refused body is not read, so the connection cannot be reused.
    headers = {
        "Content-Type": kind,
        "Content-Length": str(len(body)),
        "Connection": "close",
    } | refused.headers
    await send({"type": "http.response.start", "status": refused.status, "headers": _encode_headers(headers)})
    await send({"type": "http.response.body", "body": body})


class Work:
    """Runs computations in a few threads; refuses requests when too many wait or one takes too long."""

    def __init__(self, limits: Limits):
        self.limits, self.pending = limits, 0
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
