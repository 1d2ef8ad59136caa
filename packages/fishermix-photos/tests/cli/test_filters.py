"""One table of filters: the command, the API and the page offer what it has."""

import json
import re
from pathlib import Path

import fishermix_photos.server
import pytest
import typer
from fishermix_photos.cli import load_commands
from fishermix_photos.index.filters import FILTERS
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.server.app import create_app
from fishermix_photos.server.live import LiveLibrary
from starlette.testclient import TestClient
from tiny_model import TinyModel, paint

OFFERED = {kind.parameter for kind in FILTERS if kind.parameter is not None}
STATIC = Path(fishermix_photos.server.__file__).parent / "static"


@pytest.fixture
def client(tmp_path):
    paint(tmp_path / "photos" / "red.png", "red")
    paint(tmp_path / "photos" / "blue.jpg", "blue")
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([tmp_path / "photos"])
        live = LiveLibrary(lambda: library, (), update=False)
        live.open()
        yield TestClient(create_app(live), base_url="http://127.0.0.1")


def test_the_command_has_an_option_for_each():
    search = typer.main.get_command(load_commands()).commands["search"]
    options = {option.removeprefix("--") for parameter in search.params for option in parameter.opts}
    assert options >= OFFERED


@pytest.mark.parametrize("route", ["/api/search", "/api/browse"])
def test_the_api_has_a_parameter_for_each(client, route):
    described = client.get("/openapi.json").json()["paths"][route]["get"]["parameters"]
    assert {parameter["name"] for parameter in described} >= OFFERED
    query = {"q": "red"} if route == "/api/search" else {}

    def count(**conditions):
        return len(client.get(route, params={**query, **conditions}).json()["photos"])

    assert (count(), count(kind="PNG"), count(camera="nikon")) == (2, 1, 0)
    assert client.get(route, params={**query, "kind": "tapestry"}).status_code == 422


def test_the_page_has_a_control_for_each():
    in_the_address = re.search(r"export const FILTERS = (\[.*\]);", (STATIC / "route.js").read_text())
    assert set(json.loads(in_the_address[1])) == OFFERED | {"sort"}
    page = (STATIC / "index.html").read_text()
    controls = {"after": "filter-after", "before": "filter-to"}
    for name in OFFERED:
        assert f'id="{controls.get(name, f"filter-{name}")}"' in page
