"""Limits on connections: how many there are, how long they may be idle or slow, how much they may log.

The number of connections stays below the number of files that this process may open. When all are in use, a
new client gets the place of the one that has been idle for longest, and of one that never sent a request
first: clients who are being served stay, and a thousand idle connections only displace each other.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 5.0  # for the head of a request, from the connection or the last response on
REQUEST_SECONDS = 60.0  # for the body, the work and the response together; each has its own limit as well
SLOWEST_DOWNLOAD = 16 << 10  # bytes per second; a response that is read at least so fast may take longer
MOST_CONNECTIONS = 256
OTHER_FILES = 128  # that this process opens: the index in several threads, photos, workers
RECORDS_PER_MINUTE = 5  # of the log, for each kind of message


def count_allowed_files() -> int:
    """The number of files and connections that this process may open at the same time."""
    try:
        import resource
    except ImportError:  # Windows
        return 4 * MOST_CONNECTIONS
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return files if files != resource.RLIM_INFINITY else 4 * MOST_CONNECTIONS


def count_allowed_connections() -> int:
    """The number of connections that leaves enough descriptors for everything else."""
    return max(8, min(MOST_CONNECTIONS, count_allowed_files() - OTHER_FILES - 2 * choose_backlog()))


def choose_backlog() -> int:
    """The number of connections that asyncio accepts in one step, before any of them is counted."""
    return max(4, min(128, count_allowed_files() // 8))


class CountedTransport:
    """A transport that counts what is written to it."""

    def __init__(self, transport: Any):
        self._transport, self._written = transport, 0

    def write(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)

    def count_delivered(self) -> int:
        """The bytes that have left this process."""
        return self._written - self._transport.get_write_buffer_size()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, with a limit on connections, idle time and the time for a request.

    h11 limits the size of the head of a request; the other parser of uvicorn does not.
    """

    has_served = False
    began = 0.0
    delivered = 0  # bytes, when the timer was set
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(CountedTransport(transport))  # type: ignore[arg-type]
        self._wait_for_head()
        others = [one for one in self.connections if one is not self and not one.transport.is_closing()]
        if len(others) >= count_allowed_connections():
            idle = [one for one in others if isinstance(one, LimitedProtocol) and not one.is_busy()]
            min(idle, key=lambda one: (one.has_served, one.began), default=self).transport.abort()

    def is_busy(self) -> bool:
        """Whether a request has begun and its response is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        was_busy = self.is_busy()
        super().data_received(data)
        if self.is_busy() and not was_busy:
            self._set_timer(REQUEST_SECONDS)

    def on_response_complete(self) -> None:
        self.has_served = True
        self._wait_for_head()
        super().on_response_complete()  # may begin the next request, if it has arrived already
        if self.is_busy():
            self._set_timer(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self.began = self.loop.time()
        # A response that the client has not read yet gets the time of a request.
        unread = self.transport.get_write_buffer_size()
        self._set_timer(REQUEST_SECONDS if unread else HEAD_SECONDS)

    def _set_timer(self, seconds: float) -> None:
        """Close the connection after `seconds`, unless the timer is set again. Bytes do not set it."""
        if self._timer:
            self._timer.cancel()
        self.delivered = self.transport.count_delivered()  # type: ignore[attr-defined]
        self._timer = self.loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        """The time is over. A long response, to a client that reads it, gets more."""
        delivered = self.transport.count_delivered() - self.delivered  # type: ignore[attr-defined]
        if self.is_busy() and delivered >= SLOWEST_DOWNLOAD * REQUEST_SECONDS:
            self._set_timer(REQUEST_SECONDS)
        else:
            self.transport.abort()


class LogLimit(logging.Filter):
    """Passes a few records per minute of each kind of message, and counts the others."""

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = f"{record.levelno} {str(record.msg)[:80]}", time.monotonic()
        begun, count = self._windows.get(kind, (now, 0))
        if now - begun >= 60:
            if count > RECORDS_PER_MINUTE:
                record.msg = f"{record.msg} ({count - RECORDS_PER_MINUTE:,} such messages were omitted.)"
            begun, count = now, 0
        if kind not in self._windows and len(self._windows) >= 100:
            self._windows.clear()  # messages that differ each time do not fill the memory
        self._windows[kind] = begun, count + 1
        return count < RECORDS_PER_MINUTE


def limit_log() -> None:
    """Limit the log of the server and of asyncio, which clients can cause."""
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        if not any(isinstance(one, LogLimit) for one in logger.filters):
            logger.addFilter(LogLimit())


class LimitedServer(uvicorn.Server):
    """uvicorn, with the time limit of a head for the handshake of HTTPS too: asyncio waits a minute."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.ssl is not None:
            loop = asyncio.get_running_loop()
            limited = partial(loop.create_server, ssl_handshake_timeout=HEAD_SECONDS)
            loop.create_server = limited  # type: ignore[method-assign]
        await super().startup(sockets)


# Settings of uvicorn
SERVER: dict[str, Any] = {
    "http": LimitedProtocol,
    "loop": "asyncio",
    "ws": "none",
    "log_level": "warning",
    "backlog": choose_backlog(),
    "timeout_keep_alive": 5,
    "server_header": False,
    "proxy_headers": False,  # nobody may claim another address
    "access_log": False,  # the link that signs in contains the token
}
