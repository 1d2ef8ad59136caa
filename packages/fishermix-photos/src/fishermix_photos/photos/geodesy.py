"""The distance of two places on the earth."""

from __future__ import annotations

import math

EARTH_RADIUS_KM = 6371.0


def distance_km(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """The great-circle distance of two places in degrees, by the haversine formula."""
    phi, other = math.radians(latitude), math.radians(other_latitude)
    h = (
        math.sin((other - phi) / 2) ** 2
        + math.cos(phi) * math.cos(other) * math.sin(math.radians(other_longitude - longitude) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(h)))
