import base64
import io
from html.parser import HTMLParser

import pytest
from PIL import Image

from fishermix.experiments.captions import render_page


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


def test_lists_of_different_lengths_are_a_mistake(tmp_path):
    with pytest.raises(ValueError):
        render_page("x", [], ["a"], [])
