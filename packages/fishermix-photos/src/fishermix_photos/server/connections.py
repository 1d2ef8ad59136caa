"""The HTTP server with limits on its connections: how many there are, and how long they may be idle.

uvicorn limits the size of a request's head (h11), the number of requests at once and the time between two
requests. It waits forever for the first request of a connection and for a head that arrives byte by byte, and
accepts connections until the process has no descriptor left; `Server` closes those. `guards.py` limits the
time and the size of bodies.
"""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 5.0  # for the head of a request, from the connection or the last response on
STALLED_SECONDS = 60.0  # in which a client reads nothing of its response
SECONDS_TO_FINISH = 3.0  # for requests after Ctrl-C
MOST_FILES = 8192  # that the server asks the system for
FILES_WITHOUT_LIMIT = 1536  # where the system has no limit to ask for, on Windows
# They look up photos and read files; each may hold two descriptors of the library.
MOST_THREADS = 16


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections there may be.

    most : requests of further ones get status 503
    idle : of these may wait for a request; further ones displace those that wait for longest
    backlog : are accepted at once
    """

    most: int
    idle: int
    backlog: int

    @classmethod
    def within(cls, files: int) -> ConnectionLimits:
        """The limits for a process that may open this many files: half of them are for the library, the
        photos and the decoders.
        """
        return cls(most=min(1000, files // 3), idle=min(500, files // 6), backlog=min(128, files // 16))


def raise_file_limit() -> int:
    """Ask the system for more descriptors; returns how many this process may open."""
    try:
        import resource
    except ImportError:
        return FILES_WITHOUT_LIMIT
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS may allow less than it says
            return soft
        return wanted
    return MOST_FILES if soft == resource.RLIM_INFINITY else soft


class Connection(H11Protocol):
    """A connection that knows since when it has been waiting for a request, and for its client to read."""

    limits: ConnectionLimits

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.idle_since = self.read_at = time.monotonic()
        self.unread = 0
        self._displace()

    def on_response_complete(self) -> None:
        self.idle_since = time.monotonic()
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _displace(self) -> None:
        """Close the idle connections that are too many: those that were never used first, then the ones idle
        for longest. Clients who are being served stay.
        """
        idle = [one for one in self.connections if isinstance(one, Connection) and one.is_idle]
        if len(idle) > self.limits.idle:
            idle.sort(key=lambda one: (one.cycle is not None, one.idle_since))
            for one in idle[: len(idle) - self.limits.idle]:
                one.close()

    def close_if_late(self, now: float, head_seconds: float, stalled_seconds: float) -> None:
        """Close a connection that has neither sent a request nor read from its response for too long."""
        unread = self.transport.get_write_buffer_size()
        if unread != self.unread or not unread:
            self.unread, self.read_at = unread, now
        if now - self.read_at > stalled_seconds or (
            self.is_idle and not unread and now - self.idle_since > head_seconds
        ):
            self.close()

    def close(self) -> None:
        """End the connection now. It counts no more, although the system closes it a moment later."""
        self.connections.discard(self)
        self.transport.abort()


class Server(uvicorn.Server):
    """uvicorn with our settings, and with limits that fit the descriptors that the system allows."""

    def __init__(
        self, app: ASGIApp, head_seconds: float = HEAD_SECONDS, stalled_seconds: float = STALLED_SECONDS
    ):
        limits = ConnectionLimits.within(raise_file_limit())
        config = uvicorn.Config(
            app,
            # h11: the other parser does not limit the size of the head.
            http=type("LimitedConnection", (Connection,), {"limits": limits}),
            ws="none",
            lifespan="off",  # nothing of ours starts or ends with it
            loop="asyncio",
            log_level="error",  # what clients send wrong does not fill the log
            access_log=False,  # the link that signs in contains the token
            server_header=False,
            proxy_headers=False,  # nobody may claim another address
            timeout_keep_alive=5,
            backlog=limits.backlog,
            limit_concurrency=limits.most,
        )
        super().__init__(config)
        self.head_seconds, self.stalled_seconds = head_seconds, stalled_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = MOST_THREADS
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Called ten times per second by uvicorn."""
        now = time.monotonic()
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.close_if_late(now, self.head_seconds, self.stalled_seconds)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what is being answered, but not for long; a second Ctrl-C ends it at once."""
        hurry = asyncio.get_running_loop().call_later(SECONDS_TO_FINISH, setattr, self, "force_exit", True)
        await super().shutdown(sockets)
        hurry.cancel()
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.close()
        if self.server_state.tasks:  # they notice that their clients are gone
            await asyncio.wait(self.server_state.tasks, timeout=1)
