"""Clients that do not play by the rules, over a real socket."""

import contextlib
import http.client
import io
import socket
import time

import pytest
from fishermix_photos.server.app import create_app
from fishermix_photos.server.guards import Limits
from PIL import Image
from starlette.testclient import TestClient


@pytest.fixture(scope="module")
def strict(served):
    return served(Limits(body_bytes=100_000, body_seconds=1.0))


def exchange(address, *parts, pause=0.0):
    """Send parts with pauses; all that comes back."""
    with socket.create_connection(address, timeout=10) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except (BrokenPipeError, ConnectionResetError):
            pass
        received = b""
        try:
            while data := connection.recv(65536):
                received += data
        except ConnectionResetError:
            pass
        return received


def head(method, path, *headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def is_well(address):
    connection = http.client.HTTPConnection(*address, timeout=10)
    connection.request("GET", "/api/status")
    answer = connection.getresponse()
    connection.close()
    return answer.status == 200


def test_a_body_is_counted_while_it_arrives(served):
    address = served(Limits(body_bytes=100_000))
    chunk = b"2710\r\n" + bytes(10_000) + b"\r\n"
    answer = exchange(address, head("POST", "/api/caption", "Transfer-Encoding: chunked"), *[chunk] * 1000)
    assert answer.startswith(b"HTTP/1.1 413")
    assert is_well(address)


@pytest.mark.slow
def test_a_slow_body_is_given_up(strict):
    answer = exchange(strict, head("POST", "/api/caption", "Content-Length: 5000"), b"x")
    assert answer.startswith(b"HTTP/1.1 408")
    assert is_well(strict)


@pytest.mark.slow
def test_a_drop_at_a_time_does_not_win_time(strict):
    drops = [b"x"] * 14
    answer = exchange(strict, head("POST", "/api/caption", "Content-Length: 5000"), *drops, pause=0.15)
    assert answer.startswith(b"HTTP/1.1 408")


def test_a_client_that_goes_away_in_the_middle(strict):
    for _ in range(20):
        with socket.create_connection(strict) as connection:
            connection.sendall(head("POST", "/api/caption", "Content-Length: 5000") + b"half")
    assert is_well(strict)


def test_an_aborted_upload_logs_nothing(strict, caplog):
    for _ in range(5):
        with socket.create_connection(strict) as connection:
            connection.sendall(head("POST", "/api/caption", "Content-Length: 5000") + b"half")
    time.sleep(0.5)
    assert is_well(strict)
    assert not caplog.records


def picture():
    out = io.BytesIO()
    Image.new("RGB", (20, 20), (220, 20, 20)).save(out, "PNG")
    return out.getvalue()


def upload(address, body):
    connection = http.client.HTTPConnection(*address, timeout=10)
    connection.request("POST", "/api/caption", body)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


@contextlib.contextmanager
def unfinished_uploads(address, number, size):
    """Uploads of `size` bytes of which one byte is missing."""
    with contextlib.ExitStack() as opened:
        for _ in range(number):
            connection = opened.enter_context(socket.create_connection(address, timeout=10))
            connection.sendall(head("POST", "/api/caption", f"Content-Length: {size}") + bytes(size - 1))
        yield


def test_unfinished_uploads_stay_within_a_budget_of_bytes(served):
    address = served(Limits(upload_bytes=950_000, body_seconds=5.0))
    assert upload(address, picture()) == 200
    with unfinished_uploads(address, 9, 100_000):
        for _ in range(100):  # until all bytes have arrived
            if upload(address, bytes(100_000)) == 503:
                break
            time.sleep(0.02)
        assert upload(address, bytes(100_000)) == 503
        assert upload(address, picture()) == 200  # there is still room for a small one
        assert is_well(address)
    for _ in range(100):
        if upload(address, bytes(100_000)) == 400:  # no picture, but it was received
            break
        time.sleep(0.05)
    else:
        pytest.fail("the budget was never given back")


@pytest.mark.slow
def test_uploads_that_trickle_lock_nobody_out(served):
    address = served(Limits(body_seconds=10.0))
    with unfinished_uploads(address, 300, 2):
        began = time.monotonic()
        assert is_well(address)
        assert upload(address, picture()) == 200
        assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        head("GET", "/", "X-Filler: " + "a" * 200_000),
        head("POST", "/api/caption", "Content-Length: -1"),
        head("POST", "/api/caption", "Content-Length: 99999999999999999999"),
        head("POST", "/api/caption", "Content-Length: 4", "Content-Length: 5") + b"abcd",
        head("GET", "/../../../../etc/passwd"),
        head("GET", "//etc/passwd"),
        head("GET", "/%2e%2e/%2e%2e/etc/passwd"),
        head("GET", "/api/photos/%00"),
        head("GET", "/api/search?q=%ff%fe%00"),
        head("BREW", "/api/search?q=red"),
        b"GET /api/status HTTP/1.1\r\n\r\n",
        b"GET /api/status HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    ],
)
def test_odd_requests_are_answered_as_mistakes(strict, request_bytes):
    answer = exchange(strict, request_bytes.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
    assert answer[:10] == b"HTTP/1.1 4"
    assert b"root:" not in answer
    assert is_well(strict)


def test_no_setting_of_the_environment_sends_requests_elsewhere(shown, monkeypatch, caplog):
    """FastAPI would send its requests to this address; without a package for it, it logs that it cannot."""
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with TestClient(create_app(shown), base_url="http://127.0.0.1") as client:
        assert client.get("/api/status").json()["state"] == "ready"
    assert "telemetry" not in caplog.text
