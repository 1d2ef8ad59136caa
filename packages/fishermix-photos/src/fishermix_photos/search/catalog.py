"""What the words of a query may name: the files, folders and places of a library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fishermix_photos.index.filters import Filter
from fishermix_photos.index.names import NameCounts, fold
from fishermix_photos.index.photo import name_folders
from fishermix_photos.search.facets import Facets, count_facets

if TYPE_CHECKING:
    from fishermix_photos.index.protocol import PhotoIndex
    from fishermix_photos.index.values import Scope

PlaceOfPhotos = tuple[str, float, float]  # name, latitude and longitude
ListPlaces = Callable[["Scope"], Sequence[PlaceOfPhotos]]


@dataclass(frozen=True)
class Catalog:
    """The names that photos of one scope have.

    list_places : gives the places of a scope; it remembers them, since counting them takes long
    """

    index: PhotoIndex
    scope: Scope
    list_places: ListPlaces

    def count_names(self, names: Sequence[str]) -> Mapping[str, NameCounts]:
        """The numbers of photos that have each of several names."""
        return self.index.count_names(names, self.scope.prefixes)

    def has_name(self, word: str) -> bool:
        """Whether a photo has this word in its names."""
        name = fold(word)
        return any(self.count_names([name])[name])

    def count_photos(self, filter: Filter) -> int:
        """The number of photos that meet a filter."""
        return sum(self.index.count_years(self.scope.prefixes, filter).values())

    @property
    def facets(self) -> Facets:
        """The years, folders and kinds of the photos."""
        return count_facets(self.index.files(self.scope.prefixes), name_folders(self.index.folders()))

    @property
    def places(self) -> Sequence[PlaceOfPhotos]:
        """The places where photos were taken, those of the most photos first."""
        return self.list_places(self.scope)
