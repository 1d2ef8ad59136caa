"""Many requests to a real `fishermix serve`: python tests/many_requests.py [--requests N] [--minutes M]

Two servers on loopback serve the same photos: one may open 256 files, as after `ulimit -n 256`, the other as
many as the system allows. 16 clients send requests of all kinds, to one and to the other in turn, so that a
busy machine slows both. Each answer must have the status 200, and the servers must report nothing.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path

TESTS = Path(__file__).parents[1] / "packages/fishermix-photos/tests"
sys.path[:0] = [str(TESTS), str(TESTS / "server")]

from serving import paint_mosaic  # noqa: E402
from tiny_model import NAMES  # noqa: E402

FEW_FILES, CLIENTS, PHOTOS, ROUNDS = 256, 16, 60, 10
SHARE_OF_OTHER = 5  # the other server gets one request for each of so many
START = """
import resource, sys
files = int(sys.argv.pop(1))
if files:
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
from fishermix_photos.__main__ import main
main()
"""


@contextlib.contextmanager
def serving(folder, files):
    """The port of a server that may open so many files, or with 0 as many as it likes, and its log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place, log = folder / f"library-{files}", folder / f"log-{files}"
    options = ["--library", str(place), "--port", str(port)]
    command = [sys.executable, "-c", START, str(files), "-q", "serve", str(folder / "photos"), *options]
    with open(log, "wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        yield port, log
    finally:
        process.terminate()
        process.wait()


def ask(port, path):
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())


def wait_until_ready(port, log, seconds=120):
    """The ids of the photos, once all are in the library."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not log.stat().st_size:
        with contextlib.suppress(OSError, KeyError):
            if ask(port, "/api/status")["photos"] == PHOTOS:
                return [photo["id"] for photo in ask(port, f"/api/browse?n={PHOTOS}")["photos"]]
        time.sleep(0.5)
    raise AssertionError(f"the server was not ready in time: {log.read_text()}")


def send(port, requests, seconds, ids):
    """What `load_clients.py` prints: the statuses and the milliseconds of the answers."""
    script = [sys.executable, str(TESTS / "server" / "load_clients.py"), "127.0.0.1"]
    numbers = map(str, (port, CLIENTS, requests, seconds))
    done = subprocess.run([*script, *numbers, *ids], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=50_000, help="Of the server with few files.")
    parser.add_argument("--minutes", type=float, default=60, help="Stop after so many.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        folder = Path(scratch)
        for number in range(PHOTOS):
            colors = (NAMES[number % len(NAMES)], NAMES[(number // 2 + 1) % len(NAMES)])
            paint_mosaic(folder / "photos" / f"{number}.png", colors, number)
        os.environ["FISHERMIX_HOME"] = scratch
        servers = {files: stack.enter_context(serving(folder, files)) for files in (FEW_FILES, 0)}
        ids = {files: wait_until_ready(*server) for files, server in servers.items()}
        counts, failed, p95 = dict.fromkeys(servers, 0), 0, {files: [] for files in servers}
        until = time.monotonic() + 60 * given.minutes
        for _ in range(ROUNDS):
            for files, (port, _) in servers.items():
                requests = given.requests // ROUNDS // (1 if files else SHARE_OF_OTHER)
                found = send(port, requests, max(1, until - time.monotonic()), ids[files])
                counts[files] += sum(found["statuses"].values())
                failed += sum(count for status, count in found["statuses"].items() if status != "200")
                p95[files].append(found["p95"])
                print(f"{files or 'no limit of'} files: {json.dumps(found)}", flush=True)
            if time.monotonic() > until:
                break
        reports = "".join(log.read_text() for _, log in servers.values())
    for files in servers:
        print(
            f"{counts[files]:,} requests, {files or 'no limit of'} files: 95 % within "
            f"{statistics.median(p95[files]):.0f} ms"
        )
    print(f"{failed} errors, {len(reports)} characters in the logs of the servers\n{reports[:2000]}")
    sys.exit(bool(failed or reports))


if __name__ == "__main__":
    main()
