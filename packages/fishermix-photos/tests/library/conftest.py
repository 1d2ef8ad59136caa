"""A library of small pictures, and models that count what they are made to look at."""

import pytest
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.search.results import Query
from fishermix_photos.search.terms import parse_query
from tiny_model import NAMES, TinyModel, paint


class CountingModel(TinyModel):
    """Counts the photos it is made to look at."""

    def __init__(self):
        super().__init__()
        self.seen = []
        stream = self.image_encoder.stream
        self.image_encoder.stream = lambda images, *rest: stream(self.seen.extend(images) or images, *rest)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for name in NAMES:
        paint(folder / f"{name}.png", name)
    paint(folder / "sub" / "flag.png", "red", "white", "blue")
    return folder


@pytest.fixture
def library(tmp_path):
    with PhotoLibrary(tmp_path / "library", CountingModel()) as library:
        yield library


@pytest.fixture
def search(library):
    """The paths relative to their folders of the photos that a line finds."""

    def find(line, n=100, **options):
        query = Query(parse_query(line), n=n, **{"merge_copies": False, **options})
        return [photo.relative for photo in library.search(query).photos]

    return find
