"""Idle connections, slow heads and a flood of nonsense, against a server of its own process."""

import contextlib
import http.client
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fishermix_photos.server.app import create_app
from serving import id_of, make_library, show
from tiny_model import TinyModel, paint

resource = pytest.importorskip("resource", reason="Windows has no descriptor limit to lower")
FILES = 700
CLIENTS = 600


@pytest.fixture
def server(tmp_path, request):
    """(address, the file of its standard error) of a server that may open 700 files."""
    seconds = getattr(request, "param", 5)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CLIENTS + 100:
        pytest.skip(f"the clients of this test need {CLIENTS} descriptors, and the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CLIENTS + 100), hard))
    script, log = Path(__file__).with_name("small_server.py"), tmp_path / "log"
    with open(log, "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, script, tmp_path, str(FILES), str(seconds)],
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    address = ("127.0.0.1", int(process.stdout.readline()))
    yield address, log
    process.terminate()
    process.wait()
    process.stdout.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ask(client, path="/api/search?q=red"):
    client.request("GET", path)
    answer = client.getresponse()
    answer.read()
    return answer.status


def is_closed(connection):
    connection.settimeout(20)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_many_idle_connections_displace_each_other_and_nobody_else(server):
    address, log = server
    client = http.client.HTTPConnection(*address, timeout=20)
    assert ask(client) == 200
    socket_of_client = client.sock
    with contextlib.ExitStack() as opened:
        idle = []
        for number in range(CLIENTS):
            idle.append(opened.enter_context(socket.create_connection(address, timeout=20)))
            if number % 25 == 0:  # more at once would wait for the system to accept them
                assert ask(client) == 200
        assert client.sock is socket_of_client  # it was never cut off
        newcomer = http.client.HTTPConnection(*address, timeout=20)
        assert ask(newcomer) == 200
        newcomer.close()
        assert all(is_closed(connection) for connection in idle)  # the last ones after some seconds
    client.close()
    assert b"Too many open files" not in log.read_bytes()
    assert log.stat().st_size < 2000


@pytest.mark.parametrize("server", [1], indirect=True)
@pytest.mark.parametrize("requests_before", [0, 1])
def test_a_slow_head_is_cut_off_although_bytes_arrive(server, requests_before):
    with socket.create_connection(server[0], timeout=20) as slow:
        for _ in range(requests_before):
            slow.sendall(b"GET /api/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert slow.recv(65536).startswith(b"HTTP/1.1 200")
        sent = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for letter in b"GET /api/status HTTP/1.1\r\nX-Slow: " + b"x" * 100:
                slow.sendall(bytes([letter]))
                sent += 1
                time.sleep(0.1)
        assert sent < 100


def test_nonsense_does_not_fill_the_log(server):
    address, log = server
    for _ in range(300):
        with socket.create_connection(address, timeout=20) as connection:
            connection.sendall(b"\0\1\2\r\n\r\n")
            connection.recv(1000)
    assert log.stat().st_size < 2000


def open_download(address, path):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    connection.settimeout(20)
    connection.connect(address)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    return connection


def test_a_long_download_goes_on_while_it_is_read(served, tmp_path):
    paint(tmp_path / "photos" / "red.png", "red")
    with make_library(tmp_path / "photos", tmp_path / "library", TinyModel()) as library:
        (tmp_path / "photos" / "red.png").write_bytes(bytes(40_000_000))
        address = served(app=create_app(show(library)), stalled_seconds=0.5)
        path = f"/api/photos/{id_of(library, 'red.png')}/original"
        began, received = time.monotonic(), 0
        with open_download(address, path) as reader:
            while data := reader.recv(1 << 16):
                received += len(data)
                if time.monotonic() - began < 2:
                    time.sleep(0.005)
        assert received > 40_000_000
        assert time.monotonic() - began > 1  # longer than one piece may take
        with open_download(address, path) as idler:
            assert idler.recv(100)
            time.sleep(2)  # reads nothing
            received = 0
            with contextlib.suppress(ConnectionResetError):
                while data := idler.recv(1 << 20):
                    received += len(data)
        assert received < 40_000_000
