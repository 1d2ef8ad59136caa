"""Idle connections, slow heads and a flood of nonsense, against a server of its own process."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fishermix_photos.server.app import create_app
from fishermix_photos.server.connections import ConnectionLimits, raise_file_limit
from serving import id_of, make_library, show
from tiny_model import TinyModel, paint

resource = pytest.importorskip("resource", reason="Windows has no descriptor limit to lower")
FEW_FILES = 256
CLIENTS = 1000


@pytest.fixture
def server(tmp_path, request):
    """(address, the file of its standard error, its process) of a server that may open few files."""
    seconds = getattr(request, "param", 5)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CLIENTS + 100:
        pytest.skip(f"the clients of this test need {CLIENTS} descriptors, and the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CLIENTS + 100), hard))
    script, log = Path(__file__).with_name("small_server.py"), tmp_path / "log"
    with open(log, "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, script, tmp_path, str(FEW_FILES), str(seconds)],
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    address = ("127.0.0.1", int(process.stdout.readline()))
    yield address, log, process
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


@pytest.mark.slow
def test_many_idle_connections_displace_each_other_and_nobody_else(server):
    address, log, _ = server
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


@pytest.mark.slow
def test_slow_heads_leave_descriptors_for_others(server):
    address, log, process = server
    with contextlib.ExitStack() as opened:
        slow = []
        for _ in range(CLIENTS):
            slow.append(opened.enter_context(socket.socket()))
            slow[-1].setblocking(False)
            slow[-1].connect_ex(address)
        most, client = 0, http.client.HTTPConnection(*address, timeout=20)
        for _ in range(20):
            for connection in slow:
                with contextlib.suppress(OSError):
                    connection.send(b"G")
            assert ask(client) == 200
            if Path("/proc/self/fd").is_dir():
                most = max(most, len(list(Path(f"/proc/{process.pid}/fd").iterdir())))
        client.close()
    assert most < FEW_FILES - 100  # what is left is for photos, the library and decoders
    assert log.stat().st_size == 0


def test_limits_follow_from_the_descriptors(monkeypatch):
    assert ConnectionLimits.within(256).most < 100
    assert ConnectionLimits.within(8192) == ConnectionLimits.within(4096)  # memory is limited, too
    for files in (128, 256, 1024, 8192):
        limits = ConnectionLimits.within(files)
        assert limits.idle < limits.most
        assert limits.most + limits.idle + 2 * limits.backlog < files


def test_more_descriptors_are_asked_for(tmp_path):
    """As on macOS, where a process may open 256 files until it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        assert raise_file_limit() == min(hard, 8192) if hard != resource.RLIM_INFINITY else 8192
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == raise_file_limit()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def read_memory(process, field):
    [line] = [
        line
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
        if line.startswith(f"{field}:")
    ]
    return int(line.split()[1]) * 1000


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs Linux's account of memory")
def test_unfinished_uploads_use_little_memory(server):
    address, _, process = server
    before = read_memory(process, "VmRSS")
    sent, packet = 0, bytes(1 << 16)
    with contextlib.ExitStack() as opened:
        uploads = []
        for _ in range(60):
            uploads.append(opened.enter_context(socket.create_connection(address, timeout=20)))
            uploads[-1].sendall(
                b"POST /api/similar HTTP/1.1\r\nHost: localhost\r\nContent-Length: 24000000\r\n\r\n"
            )
            uploads[-1].setblocking(False)
        until = time.monotonic() + 10
        while sent < 400_000_000 and time.monotonic() < until:
            for upload in uploads:
                with contextlib.suppress(OSError):
                    sent += upload.send(packet)
    assert sent > 150_000_000
    assert read_memory(process, "VmHWM") - before < 250_000_000


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGINT to send")
@pytest.mark.parametrize("times", [1, 2])
def test_an_upload_does_not_keep_the_server_alive(server, times):
    address, log, process = server
    with socket.create_connection(address, timeout=20) as upload:
        upload.sendall(b"POST /api/similar HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\nabc")
        time.sleep(0.3)
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        process.wait(timeout=10)  # uploads may take 15
    assert log.read_text() == ""


@pytest.mark.slow
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


@pytest.mark.slow
def test_nonsense_does_not_fill_the_log(server):
    address, log, _ = server
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


@pytest.mark.slow
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
