"""What the tests of the server share: libraries that stay as they are, and their photos by path."""

from fishermix_photos.library import PhotoLibrary
from fishermix_photos.results import Query
from fishermix_photos.server.live import LiveLibrary


def make_library(folder, place, model):
    """A library of one folder, up to date."""
    library = PhotoLibrary(place, model)
    library.update([folder])
    return library


def show(library, sentences=None, folders=()):
    """A library to be served as it is."""
    live = LiveLibrary(lambda: library, folders, sentences, update=None)
    live.open()
    return live


def photos_of(library):
    """All photos by their path relative to their folder."""
    return {photo.relative: photo for photo in library.browse(Query(n=10_000)).photos}


def id_of(library, relative):
    return photos_of(library)[relative].id
