"""Counters of the server in the text format of Prometheus."""

from __future__ import annotations

import threading
from collections import defaultdict


class Metrics:
    """Requests and seconds by route and status; routes are templates, so their number is bounded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        self._seconds: dict[str, float] = defaultdict(float)

    def count(self, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[route, status] += 1
            self._seconds[route] += seconds

    def text(self, gauges: dict[str, float]) -> str:
        with self._lock:
            requests, seconds = dict(self._requests), dict(self._seconds)
        lines = ["# TYPE fishermix_requests_total counter"]
        lines += [
            f'fishermix_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(requests.items())
        ]
        lines.append("# TYPE fishermix_request_seconds_total counter")
        lines += [
            f'fishermix_request_seconds_total{{route="{route}"}} {total:.6f}'
            for route, total in sorted(seconds.items())
        ]
        for name, value in gauges.items():
            lines += [f"# TYPE fishermix_{name} gauge", f"fishermix_{name} {value:g}"]
        return "\n".join(lines) + "\n"
