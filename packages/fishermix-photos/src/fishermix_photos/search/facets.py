"""The years, folders and kinds of photos: what a user may filter by."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fishermix_photos.index.photo import replace_undecodable
from fishermix_photos.photos.details import find_kind


@dataclass(frozen=True)
class FacetCount:
    """A year, a folder or a kind of files, and its number of photos."""

    name: str
    photos: int


@dataclass(frozen=True)
class Facets:
    """What a user may filter by.

    years : newest first
    folders : such as "Pictures/2019", by name
    kinds : of files, by number
    """

    years: tuple[FacetCount, ...] = ()
    folders: tuple[FacetCount, ...] = ()
    kinds: tuple[FacetCount, ...] = ()


def sort_years(years: Mapping[tuple[bool, str], int], order: str) -> tuple[FacetCount, ...]:
    """The years of a list in its order, with their numbers of photos, and an empty name for those without a
    date; none of a list by name.
    """
    if order == "name":
        return ()
    found = sorted(years, key=lambda year: year[1], reverse=order == "date")
    found.sort(key=lambda year: (year[0], not year[1]))
    return tuple(FacetCount(year, years[doubtful, year]) for doubtful, year in found)


def count_facets(
    files: Sequence[tuple[str, bytes, bytes, str | None]], labels: Mapping[str, str] | None = None
) -> Facets:
    """The years, folders and kinds of what `PhotoIndex.files` gave.

    labels : the names of the folders of the library, as `name_folders` gives them
    """
    labels = labels or {}
    years = Counter((taken or "")[:4] for _, _, _, taken in files)
    suffixes = Counter(path.rpartition(b".")[2].lower() for _, path, _, _ in files)
    parents = Counter((path.rpartition(b"/")[0], folder) for _, path, folder, _ in files)
    kinds, places = Counter[str](), Counter[str]()
    for suffix, count in suffixes.items():
        kinds[find_kind(f"photo.{os.fsdecode(suffix)}")] += count
    for (path, folder), count in parents.items():
        top = os.fsdecode(folder)
        inside = os.fsdecode(path)[len(top.rstrip("/")) :].strip("/")
        name = replace_undecodable(os.path.join(labels.get(top, os.path.basename(top)), inside).rstrip("/"))
        while name:
            places[name] += count
            name = os.path.dirname(name)
    del years[""]
    return Facets(
        tuple(FacetCount(*pair) for pair in sorted(years.items(), reverse=True)),
        tuple(FacetCount(*pair) for pair in sorted(places.items())),
        tuple(FacetCount(*pair) for pair in kinds.most_common()),
    )
