"""The command and the page answer the same."""

import json

import numpy as np
import pytest
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.server.app import create_app
from fishermix_photos.server.live import LiveLibrary
from starlette.testclient import TestClient
from tiny_model import NAMES, paint


@pytest.fixture
def folders(tmp_path):
    """52 and 18 photos, of which the second folder has more red ones."""
    rng = np.random.default_rng(0)
    folders = tmp_path / "a", tmp_path / "b"
    for folder, number, red in ((folders[0], 52, 2), (folders[1], 18, 8)):
        for photo in range(number):
            colors = rng.choice(NAMES[1:], 6).tolist() + ["red"] * int(rng.integers(0, red + 1))
            name = f"IMG_20{10 + photo % 10}0102_{photo:06}.png"
            paint(folder / name, *sorted(colors), size=(12 * len(colors), 10))
    return folders


@pytest.fixture
def ask_page(calibrated, folders):
    """The photos that the page of both folders shows."""
    calibrated("library", "add", *folders)
    with PhotoLibrary() as library:
        live = LiveLibrary(lambda: library, folders, update=False)
        live.open()
        client = TestClient(create_app(live), base_url="http://127.0.0.1")

        def ask(query, **parameters):
            found = client.get("/api/search", params={"q": query, "n": 70, **parameters}).json()["photos"]
            return [
                (photo["path"], photo["score"], photo.get("probability"), photo.get("band"))
                for photo in found
            ]

        yield ask


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "options", "parameters"),
    [
        ("red", [], {}),
        ("red", ["-n", 5], {"n": 5}),
        ("red without blue", [], {}),
        ("2:red - 0.5:green", [], {}),
        ("red since 2015", [], {}),
        ("red", ["--after", "2013", "--before", "2016"], {"after": "2013", "before": "2016"}),
        ("since 2015", [], {}),
        ("black", ["--in", "b"], {"in": "b"}),
    ],
)
def test_command_and_page_answer_the_same(calibrated, ask_page, folders, query, options, parameters):
    options = options if "-n" in options else [*options, "-n", 70]
    listed = json.loads(calibrated("search", query, *folders, "--json", *options))
    top = len(str(folders[0].parent)) + 1
    found = [
        (photo["path"][top:], photo.get("score"), photo.get("probability"), photo.get("band"))
        for photo in listed
    ]
    shown = ask_page(query, **parameters)
    assert found
    assert [photo[0] for photo in shown] == [photo[0] for photo in found]
    assert [photo[3] for photo in shown] == [photo[3] for photo in found]
    for numbers in (1, 2):
        page = [-1 if photo[numbers] is None else photo[numbers] for photo in shown]
        command = [-1 if photo[numbers] is None else photo[numbers] for photo in found]
        np.testing.assert_allclose(page, command, atol=1e-4)
