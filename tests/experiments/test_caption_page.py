import base64
import io
from html.parser import HTMLParser

import pytest
from PIL import Image

from fishermix.experiments.captions import render_page
from fishermix.vision.images import UnreadableImage


class Reader(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.images, self.texts, self.open = [], {"p": [], "li": [], "h1": []}, ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.open = tag
        if tag == "img":
            self.images.append(dict(attributes))

    def handle_data(self, data):
        if self.open in self.texts and data.strip():
            self.texts[self.open].append(data)


def test_page_holds_everything_it_shows(tmp_path):
    Image.new("RGB", (900, 600), "red").save(tmp_path / "a.jpg")
    Image.new("L", (40, 90), 77).save(tmp_path / "b.png")
    written, true = ["a <b> & 'dog'", "two cats"], [["One.", "Two <i>."], ["Three"]]
    text = render_page("Photos & more", [tmp_path / "a.jpg", tmp_path / "b.png"], written, true)
    reader = Reader(text)
    assert reader.texts["h1"] == ["Photos & more"]
    assert reader.texts["p"][1:] == written
    assert reader.texts["li"] == ["One.", "Two <i>.", "Three"]
    assert [image["alt"] for image in reader.images] == written
    sizes = []
    for image in reader.images:
        head, _, data = image["src"].partition(",")
        assert head == "data:image/jpeg;base64"
        sizes.append(Image.open(io.BytesIO(base64.b64decode(data))).size)
    assert sizes == [(480, 320), (40, 90)]
    assert "http" not in text


@pytest.mark.parametrize(
    ("name", "limit", "message"),
    [("photo.ico", None, "Supported formats: JPEG, PNG"), ("photo.png", 100, "limit is 100 pixels")],
)
def test_photos_are_opened_with_the_allow_list_and_the_pixel_limit(
    tmp_path, monkeypatch, name, limit, message
):
    Image.new("RGB", (64, 48), "red").save(tmp_path / name)
    if limit:
        monkeypatch.setattr("fishermix.vision.images.default_max_pixels", lambda: limit)
    with pytest.raises(UnreadableImage, match=message) as caught:
        render_page("x", [tmp_path / name], ["a"], [["b"]])
    assert str(tmp_path / name) in str(caught.value)


def test_lists_of_different_lengths_are_a_mistake(tmp_path):
    with pytest.raises(ValueError):
        render_page("x", [], ["a"], [])
