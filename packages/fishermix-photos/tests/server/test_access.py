"""The token of a server on a network: link, cookie, header, hosts, rate limits, HTTPS, QR code, command."""

import contextlib
import http.client
import io
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from fishermix_photos.server.access import Access, find_own_address, is_loopback
from fishermix_photos.server.app import create_app
from fishermix_photos.server.live import LiveLibrary
from serving import id_of, make_library
from starlette.testclient import TestClient
from tiny_model import TinyModel, paint

PATHS = ("/", "/app.js", "/openapi.json", "/api/status", "/api/search?q=red", "/api/browse")


@pytest.fixture
def access():
    return Access(local=False)


@pytest.fixture
def token(access):
    return access.token


@pytest.fixture
def client(shown, access):
    app = create_app(shown, access=access)
    with TestClient(app, base_url="http://192.168.1.7:8321", follow_redirects=False) as client:
        yield client


def test_nothing_without_the_token(client, library):
    photo = id_of(library, "red.png")
    for path in (*PATHS, f"/api/photos/{photo}", f"/api/photos/{photo}/original", f"/api/export?id={photo}"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "detail" in answer.json()
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert client.post("/api/caption", content=b"x").status_code == 401
    page = client.get("/", headers={"Accept": "text/html"})
    assert page.status_code == 401
    assert "QR code" in page.text


def test_the_link_signs_in(client, token):
    answer = client.get(f"/?token={token}")
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie  # plain HTTP
    assert token not in cookie  # the cookie has a secret of its own
    assert token not in answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert 'url=/"' in answer.text  # so that the address does not keep the token
    for path in PATHS:
        assert client.get(path).status_code == 200


def test_programs_send_the_token_in_a_header(client, token):
    headers = {"Authorization": f"Bearer {token}"}
    assert client.get("/api/search?q=red", headers=headers).json()["photos"][0]["path"] == "photos/red.png"
    assert client.get("/api/search?q=red").status_code == 401  # no cookie came with it


@pytest.mark.parametrize(
    "wrong", ["", "x", "{token}x", "{token} ", "%00", "ü", "{half}", "{other}", "{upper}", "a" * 5000]
)
def test_wrong_tokens(client, token, wrong):
    wrong = wrong.format(
        token=token, half=token[:20], other=Access(local=False).token, upper=token.swapcase()
    )
    for answer in (
        client.get("/", params={"token": wrong}),
        client.get("/", headers={"Authorization": f"Bearer {wrong}".encode()}),
        client.get("/", headers={"Cookie": f"fishermix_8321={wrong}".encode()}),
        client.get(f"/api/status?token={token}"),  # the link is that of the page
    ):
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers


def test_the_cookie_of_another_server_does_not_open_this_one(client, shown):
    access = Access(local=False)
    other = create_app(shown, access=access)
    with TestClient(other, base_url="http://192.168.1.7:8321") as elsewhere:
        elsewhere.get(f"/?token={access.token}")
        headers = {"Cookie": f"fishermix_8321={elsewhere.cookies['fishermix_8321']}"}
        assert elsewhere.get("/api/status").status_code == 200
    assert client.get("/api/status", headers=headers).status_code == 401


@pytest.mark.parametrize(
    "others",
    [['odd={"a b": [1, 2]}', "x=é, y"], ["a b c; =", 'q="unfinished'], ["fishermix_8321=wrong", "z=1"]],
)
def test_cookies_of_other_programs_do_not_lock_anybody_out(client, token, others):
    cookie = client.get(f"/?token={token}").headers["set-cookie"].split(";")[0]
    client.cookies.clear()
    before, after = (other.encode("latin-1") for other in others)
    together = b"; ".join([before, cookie.encode(), after])
    assert client.get("/api/status", headers=[(b"Cookie", together)]).status_code == 200
    apart = [(b"Cookie", before), (b"Cookie", cookie.encode()), (b"Cookie", after)]
    assert client.get("/api/status", headers=apart).status_code == 200
    assert client.get("/api/status", headers=[(b"Cookie", before + b"; " + after)]).status_code == 401


@pytest.mark.parametrize(
    ("host", "local", "network"),
    [
        ("127.0.0.1:8321", True, True),
        ("127.0.0.2:8321", True, True),  # serve --host 127.0.0.2
        ("localhost", True, True),
        ("[::1]:8321", True, True),
        ("192.168.1.7:8321", False, True),
        ("[fe80::1]:8321", False, True),
        (socket.gethostname(), False, True),
        ("evil.example", False, False),
        ("evil.example:8321", False, False),
        ("127.0.0.1.evil.example", False, False),
        ("192.168.1.7.evil.example:8321", False, False),
        ("", False, False),
        ("[", False, False),
        ("127.0.0.1:", False, False),
        ("127.0.0.1:evil", False, False),
        ("127.0.0.1:8321:8321", False, False),
        ("127.0.0.1:99999", False, False),
        ("localhost:-1", False, False),
    ],
)
def test_hosts(host, local, network):
    is_this_machine = host.lower() == "localhost"
    assert Access().allows_host(host) is (local or is_this_machine)
    assert Access(local=False).allows_host(host) is network


def test_a_refused_host_is_told_which_are_allowed(client):
    assert "its machine" in client.get("/", headers={"Host": "evil.example"}).json()["detail"]


def test_foreign_sites_stay_out_with_a_token_too(client, token):
    client.get(f"/?token={token}")
    assert client.get("/api/status").status_code == 200
    assert client.get("/api/status", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("/api/status", headers={"Origin": "https://192.168.1.7:8321"}).status_code == 403
    assert client.get("/api/status", headers={"Origin": "http://192.168.1.7:8321"}).status_code == 200
    assert client.get("/api/status", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


def test_a_network_sees_no_full_path(client, token, library):
    client.get(f"/?token={token}")
    photo = id_of(library, "red.png")
    assert client.get(f"/api/photos/{photo}/details").json()["file"] is None
    assert client.get(f"/api/export?id={photo}").text == "photos/red.png\n"


@pytest.mark.parametrize("local", [False, True])
def test_problems_name_full_paths_on_this_machine_only(tmp_path, local):
    """A library that cannot be used any more: its folder is named in errors and in the status."""
    folder = paint(tmp_path / "somebody" / "photos" / "red.png", "red").parent
    library, access = make_library(folder, tmp_path / "somebody" / "library", TinyModel()), Access(local)
    live = LiveLibrary(lambda: library, [folder])
    live.open()
    headers = {} if local else {"Authorization": f"Bearer {access.token}"}
    with TestClient(create_app(live, access=access), base_url="http://127.0.0.1", headers=headers) as client:
        folder.rename(tmp_path / "elsewhere")
        live._look()
        live._update()
        problem = client.get("/api/status").json()["problem"]
        assert ("somebody" in problem) is local
        assert "photos" in problem
        library.close()
        (tmp_path / "somebody" / "library" / "library.sqlite").write_bytes(b"no database" * 1000)
        answer = client.get("/api/search?q=red")
        assert answer.status_code == 400
        assert ("somebody" in answer.json()["detail"]) is local


def test_a_network_needs_a_token():
    assert Access(local=False).is_closed
    assert Access(with_token=True).is_closed
    assert not Access().is_closed
    assert [is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "192.168.1.7", "example")] == [False] * 4
    assert find_own_address("127.0.0.1") == "127.0.0.1"
    assert find_own_address("0.0.0.0").count(".") == 3


def test_the_token_is_in_no_log(served, shown, caplog):
    access = Access(with_token=True)
    token = access.token
    with caplog.at_level(logging.DEBUG):
        address = served(app=create_app(shown, access=access))
        for path in (f"/?token={token}", f"/api/status?token={token}", f"/nowhere?token={token}"):
            client = http.client.HTTPConnection(*address, timeout=20)
            client.request("GET", path)
            client.getresponse().read()
            client.close()
    assert token not in caplog.text


# HTTPS and the command


@contextlib.contextmanager
def serve(tmp_path, *options):
    """`fishermix serve` in a process; yields it with its port."""
    paint(tmp_path / "photos" / "red.png", "red")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = (
        "from tiny_model import TinyModel; from fishermix_photos.model.model import ImageTextModel; "
        "ImageTextModel.load = TinyModel.load; from fishermix_photos.cli import main; main()"
    )
    paths = os.pathsep.join([str(Path(__file__).parent.parent), *(path for path in sys.path if path)])
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(tmp_path / "photos"), "--port", str(port), *options],
        env=os.environ
        | {"FISHERMIX_HOME": str(tmp_path / "home"), "PYTHONPATH": paths, "PYTHONIOENCODING": "utf8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf8",
    )
    try:
        yield process, port
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def read_link(process):
    """The printed link, and what was printed before it."""
    before = []
    while line := process.stdout.readline():
        if found := re.fullmatch(r"(https?)://([\d.]+):(\d+)/\?token=([\w-]+)\n", line):
            return found, before
        before.append(line)
    raise AssertionError(process.stderr.read())


def read_qr_code(lines):
    """Decode the half blocks of the terminal with another QR implementation."""
    zxingcpp = pytest.importorskip("zxingcpp")
    blocks = {" ": (1, 1), "▀": (0, 1), "▄": (1, 0), "█": (0, 0)}
    rows = []
    for line in lines:
        # segno prints dark modules as the background: reversed video, or the letters themselves
        plain = re.sub(r"\x1b\[[\d;]*m", "", line).rstrip("\n")
        if plain and set(plain) <= set(blocks):
            pairs = [blocks[letter] for letter in plain]
            rows += [[pair[0] for pair in pairs], [pair[1] for pair in pairs]]
    for image in (np.array(rows, np.uint8) * 255, 255 - np.array(rows, np.uint8) * 255):
        large = np.pad(np.kron(image, np.ones((8, 8), np.uint8)), 64, constant_values=255)
        for found in zxingcpp.read_barcodes(large):
            return found.text
    return None


def fetch(connection, path, **headers):
    for _ in range(200):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 503:
            return answer, content
        time.sleep(0.1)
    raise AssertionError("the server did not load")


@pytest.mark.slow
def test_the_command_shows_a_link_and_a_qr_code_of_it(tmp_path):
    with serve(tmp_path, "--token") as (process, port):
        link, before = read_link(process)
        assert link[1] == "http"
        assert int(link[3]) == port
        assert read_qr_code(before) == link[0].strip()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        answer, _ = fetch(connection, "/api/search?q=red")
        assert answer.status == 401
        connection.close()
        answer, _ = fetch(connection, f"/?token={link[4]}")
        cookie = answer.headers["Set-Cookie"].split(";")[0]
        connection.close()
        wait_until_ready(connection, Cookie=cookie)
        answer, content = fetch(connection, "/api/search?q=red", Cookie=cookie)
        assert json.loads(content)["photos"][0]["path"] == "photos/red.png"
        connection.close()


def wait_until_ready(connection, **headers):
    for _ in range(200):
        _, content = fetch(connection, "/api/status", **headers)
        status = json.loads(content)
        if status["state"] == "ready" and status["photos"]:
            return
        time.sleep(0.05)
    raise AssertionError(status)


@pytest.mark.slow
def test_a_wrong_host_is_reported_at_once(tmp_path):
    with serve(tmp_path, "--host", "no.such.host.invalid") as (process, _):
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "is not an address of this machine" in errors
    assert out == ""


def test_a_terminal_without_blocks_gets_the_link(monkeypatch):
    from fishermix_photos.cli.serve import print_qr_code

    pytest.importorskip("segno")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    print_qr_code("http://127.0.0.1/?token=x")
