"""Time of a search by name, place and date in a library of 100,000 photos, in the server: p50 and p95.

The paths and points are synthetic: 1,000 folders named by a month and a country, 100 cities with coordinates,
files named as cameras do. The model is the one of the package, whose encoding of the sentence is part of the
time. The requests are sent in this process, without a network.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from fastapi.testclient import TestClient
from fishermix_photos.index.scan import Stamp
from fishermix_photos.index.values import Entry
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.saved import SHIPPED
from fishermix_photos.photos.details import Details
from fishermix_photos.server.app import create_app
from fishermix_photos.server.live import LiveLibrary

from benchmarks.timing import Row, Timing, measure

PHOTOS, FOLDERS, REPEATS = 100_000, 1_000, 20
COUNTRIES = (
    *("Peru", "Italy", "Japan", "Norway", "Kenya", "Chile", "Portugal", "Vietnam", "Iceland", "Morocco"),
    *("Poland", "Nepal", "Mexico", "Greece", "Canada", "Jordan", "Cuba", "Latvia", "Ghana", "Fiji"),
)
EVENTS = ("Hike", "Beach", "Wedding", "City", "Museum", "Market", "Lake", "Party", "Train", "Snow")
REQUESTS = {
    "a name": "/api/search?q=peru",
    "a sentence in a named folder": "/api/search?q=a+church+in+peru",
    "an everyday word that is a name": "/api/search?q=a+dog+on+the+beach",
    "a file name": "/api/search?q=IMG_54321.jpg",
    "a date": "/api/search?q=last+summer",
    "a sentence with a date": "/api/search?q=a+dog+in+summer+2019",
    "a place": "/api/search?q=a+church&near=Lima",
    "name, place and date": "/api/search?q=a+church+in+peru+in+2015&near=Lima",
    "part of a folder's name": "/api/search?q=a+church&in=per",
    "no name": "/api/search?q=two+dogs+run+through+a+field",
    "the newest photos": "/api/browse?n=60",
}


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        model = ImageTextModel.load(SHIPPED)
        fill(LocalIndex(Path(folder) / "library"), model)
        with PhotoLibrary(Path(folder) / "library", model) as library:
            return list(_ask(library))


def fill(store: LocalIndex, model: ImageTextModel) -> None:
    """Write a library of synthetic photos."""
    rng = np.random.default_rng(0)
    store.adopt(model.key, model.csls_dimension)
    store.add_folder("/photos")
    for start in range(0, PHOTOS, 10_000):
        points = rng.standard_normal((10_000, model.csls_dimension)).astype(np.float32)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        store.write("/photos", [_make_photo(start + i, point) for i, point in enumerate(points)])
    store.tune()


def _make_photo(number: int, point: np.ndarray) -> Entry:
    folder = number % FOLDERS
    year, month, country = 2005 + folder % 20, folder % 12 + 1, COUNTRIES[folder % len(COUNTRIES)]
    event = EVENTS[folder // 20 % len(EVENTS)]
    path = f"/photos/{year}/{year}-{month:02} {country} {event} {folder}/IMG_{number:05}.jpg"
    city = f"{'Lima' if country == 'Peru' else 'Town'}, {country}"
    latitude = -12.0 + (folder % 20) * 3 + (number // FOLDERS) * 1e-3
    taken = f"{year}-{month:02}-{number % 28 + 1:02}T12:00:00"
    details = Details(taken, "exif", "Camera", latitude, folder % 100 * 3 - 150.0, 4000, 3000, city, country)
    return Entry(path, Stamp(0, 0), number.to_bytes(32, "big"), point, details=details)


def _ask(library: PhotoLibrary) -> Iterator[Row]:
    """Send each request some times, in turns, after one that does not count."""
    live = LiveLibrary(lambda: library, update=False)
    live.open()
    with TestClient(create_app(live), base_url="http://127.0.0.1") as client:
        found: dict[str, list[Timing]] = {name: [] for name in REQUESTS}
        for turn in range(REPEATS + 1):
            for name, request in REQUESTS.items():
                timing = measure(lambda request=request: client.get(request).raise_for_status())
                found[name] += [timing] if turn else []
    for name, timings in found.items():
        for share in (50, 95):
            wall, cpu = (
                float(np.percentile([getattr(t, kind) for t in timings], share)) for kind in ("wall", "cpu")
            )
            yield Row(f"{name}, {PHOTOS:,} photos, p{share}", Timing(wall, cpu), wanted="50 ms")
