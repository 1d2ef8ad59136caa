"""The name of a place in a filter: "Lima", "Paris, Texas", "Peru", "Lima,50km"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from fishermix_photos.index.filters import NAME_OF_PLACE, Filter
from fishermix_photos.index.gazetteer import open_gazetteer
from fishermix_photos.index.names import fold
from fishermix_photos.search.notes import Note

DEFAULT_DISTANCE_KM = 25.0  # "near Lima" without a distance


def names_place(filter: Filter) -> bool:
    """Whether a filter has the name of a place in place of coordinates."""
    return filter.near is not None and NAME_OF_PLACE.search(filter.near) is not None


def find_place(filter: Filter, places: Sequence[tuple[str, float, float]]) -> tuple[Filter, Note]:
    """A filter with coordinates, or the country, in place of the name of a place, and a note on it.

    places : names, latitudes and longitudes of places where photos were taken: these are meant first
    """
    name, kilometers = split_distance(filter.near or "")
    wanted = fold(name)
    countries = {fold(place.rpartition(", ")[2]): place.rpartition(", ")[2] for place, *_ in places}
    city = next((city for city in places if wanted in _list_names(city[0])), None)
    if city is None and wanted not in countries:
        countries = {fold(country): country for country in open_gazetteer().countries.values()}
    if kilometers is None and (country := countries.get(wanted)):
        country_only = replace(filter, near=None, names=(*filter.names, fold(country)))
        return country_only, Note("country", name, country)
    place, latitude, longitude = city or open_gazetteer().find_city(name)
    distance = DEFAULT_DISTANCE_KM if kilometers is None else kilometers
    near = f"{latitude:.5f},{longitude:.5f},{distance:g}km"
    return replace(filter, near=near), Note("near", place, f"{distance:g}")


def _list_names(place: str) -> tuple[str, str]:
    """What "Lima, Peru" can be called in a query."""
    return fold(place), fold(place.rpartition(", ")[0])


def split_distance(near: str) -> tuple[str, float | None]:
    """The name of a place, and the distance in kilometers if one follows: "Lima,50km"."""
    found = re.fullmatch(r"(.*?),\s*(\d+(?:\.\d+)?)\s*(km|m)?\s*", near)
    if found is None:
        return near.strip(), None
    return found[1].strip(), float(found[2]) / (1000 if found[3] == "m" else 1)
