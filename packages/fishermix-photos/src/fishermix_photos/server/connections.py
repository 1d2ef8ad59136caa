"""The HTTP server with limits on its connections: how many there are, and how long they may be idle.

uvicorn limits the size of a request's head (h11) and the time between two requests. It waits forever for the
first request of a connection and for a head that arrives byte by byte; `Server` closes those. `guards.py`
limits the time and the size of bodies.
"""

from __future__ import annotations

import time

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_SECONDS = 5.0  # for the head of a request, from the connection or the last response on
STALLED_SECONDS = 60.0  # in which a client reads nothing of its response
MOST_CONNECTIONS, MOST_IDLE = 500, 250  # half of the files that Linux lets a process open by default


class Server(uvicorn.Server):
    """uvicorn with our settings that also closes connections without a request.

    When many are idle, those that were never used are closed first, then the ones idle for longest: clients
    who are being served stay.
    """

    def __init__(
        self, app: ASGIApp, head_seconds: float = HEAD_SECONDS, stalled_seconds: float = STALLED_SECONDS
    ):
        config = uvicorn.Config(
            app,
            http="h11",  # the other parser does not limit the size of the head
            ws="none",
            loop="asyncio",
            log_level="error",  # what clients send wrong does not fill the log
            access_log=False,  # the link that signs in contains the token
            server_header=False,
            proxy_headers=False,  # nobody may claim another address
            timeout_keep_alive=5,
            backlog=128,
            limit_concurrency=MOST_CONNECTIONS,
        )
        super().__init__(config)
        self.head_seconds, self.stalled_seconds = head_seconds, stalled_seconds
        self._since: dict[tuple[H11Protocol, RequestResponseCycle | None, int], float] = {}

    async def on_tick(self, counter: int) -> bool:
        """Called ten times per second by uvicorn."""
        self._close_idle(time.monotonic())
        return await super().on_tick(counter)

    def _close_idle(self, now: float) -> None:
        """Close what has neither begun a request nor read from its response for too long."""
        states = [
            (connection, connection.cycle, connection.transport.get_write_buffer_size())
            for connection in self.server_state.connections
            if isinstance(connection, H11Protocol)
        ]
        self._since = {state: self._since.get(state, now) for state in states}
        idle = []
        for state, since in self._since.items():
            connection, cycle, unread = state
            if unread:
                if now - since > self.stalled_seconds:
                    connection.transport.abort()
            elif cycle is None or cycle.response_complete:
                if now - since > self.head_seconds:
                    connection.transport.abort()
                else:
                    idle.append((cycle is not None, since, connection))
        idle.sort(key=lambda one: one[:2])
        for _, _, connection in idle[: max(0, len(idle) - MOST_IDLE)]:
            connection.transport.abort()
