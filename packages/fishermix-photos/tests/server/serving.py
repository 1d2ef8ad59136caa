"""What the tests of the server share: libraries that stay as they are, their photos by path, and pictures
that are no copies of each other.
"""

import numpy as np
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.search.results import Query
from fishermix_photos.server.live import LiveLibrary
from PIL import Image
from tiny_model import COLOURS


def make_library(folder, place, model):
    """A library of one folder, up to date."""
    library = PhotoLibrary(place, model)
    library.update([folder])
    return library


def show(library, folders=()):
    """A library to be served as it is."""
    live = LiveLibrary(lambda: library, folders, update=False)
    live.open()
    return live


def photos_of(library):
    """All photos by their path relative to their folder."""
    return {photo.relative: photo for photo in library.browse(Query(n=10_000)).photos}


def id_of(library, relative):
    return photos_of(library)[relative].id


def paint_mosaic(path, colours, seed, size=(48, 32)):
    """Save a picture of 24 tiles, about as many of each colour, in an order that the seed decides."""
    width, height = size
    chosen = np.random.default_rng(seed).permutation(24).reshape(height // 8, width // 8) % len(colours)
    tiles = np.array([COLOURS[name] for name in colours], np.uint8)[chosen]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(tiles.repeat(8, axis=0).repeat(8, axis=1)).save(path)
