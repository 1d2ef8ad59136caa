"""Conditions on the photos of an index, as values: each kind of index writes them in its own SQL."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fishermix_photos.index.names import NameColumn
from fishermix_photos.photos.geodesy import EARTH_RADIUS_KM

Column = Literal["taken", "camera", "kind", "place", "region"]  # of text


@dataclass(frozen=True)
class Below:
    """The path begins with one of these prefixes, which end in a slash; no photo is below no prefix."""

    prefixes: tuple[str, ...]

    @property
    def ranges(self) -> list[tuple[bytes, bytes]]:
        """The first path of each prefix, and the first one after all of it: 0 follows the slash."""
        starts = [os.fsencode(prefix) for prefix in self.prefixes]
        return [(start, start[:-1] + b"0") for start in starts]


@dataclass(frozen=True)
class AtLeast:
    """A column of photos has this value or a larger one. The program names columns, never a user."""

    column: Column
    value: str


@dataclass(frozen=True)
class LessThan:
    """A column has a smaller value."""

    column: Column
    value: str


@dataclass(frozen=True)
class EqualTo:
    """A column has this value."""

    column: Column
    value: str


@dataclass(frozen=True)
class Contains:
    """A column contains this text, in any case."""

    column: Column
    text: str


@dataclass(frozen=True)
class Undated:
    """There is no date but the time of the file, which may be that of a copy."""


@dataclass(frozen=True)
class Near:
    """Taken at most this many kilometers from a place."""

    latitude: float
    longitude: float
    kilometers: float

    @property
    def box(self) -> tuple[float, float, float, float]:
        """South, north, west and east of what is near: an index of coordinates excludes the rest."""
        height = math.degrees(self.kilometers / EARTH_RADIUS_KM)
        widest = math.cos(math.radians(min(90.0, abs(self.latitude) + height)))
        width = height / widest if widest > 0.01 else 360.0
        is_round = abs(self.longitude) + width > 180  # the box would cross the date line
        west, east = (-180.0, 180.0) if is_round else (self.longitude - width, self.longitude + width)
        return self.latitude - height, self.latitude + height, west, east


@dataclass(frozen=True)
class HasWords:
    """These words stand in a row in a column of names or in the text of the photo, or in any of them; with
    `is_prefix`, the last word may be incomplete.
    """

    phrase: str
    column: NameColumn | None = None
    is_prefix: bool = False


@dataclass(frozen=True)
class AnyOf:
    """At least one condition holds."""

    conditions: tuple[Condition, ...]


UNDATED = "coalesce(p.taken_from, 'file') = 'file'"  # in the SQL of both kinds of index
Condition = Below | AtLeast | LessThan | EqualTo | Contains | Undated | Near | HasWords | AnyOf


def limit_to(prefixes: Sequence[str]) -> list[Condition]:
    """The conditions of a scope: its prefixes, none for all photos."""
    return [Below(tuple(prefixes))] if prefixes else []
