"""Why a search found nothing: the first of its conditions that no photo meets."""

from __future__ import annotations

from dataclasses import replace

from fishermix_photos.index.filters import NO_FILTER, Filter
from fishermix_photos.index.names import fold
from fishermix_photos.search.catalog import Catalog
from fishermix_photos.search.notes import Note
from fishermix_photos.search.reading import Reading

ANYWHERE = "0,0,20100km"  # farther than any place on Earth
MOST_NAMED = 5  # folders, kinds or places


def explain_absence(asked: Filter, reading: Reading, catalog: Catalog) -> Reading:
    """A reading with a note on the first condition that no photo meets; the same reading if there is none.

    asked : the filter of the query, in which a place may have a name
    """
    filter = reading.filter
    if not filter or catalog.count_photos(filter) or not catalog.count_photos(NO_FILTER):
        return reading
    notes = [note for note in reading.notes if note.kind not in ("near", "country")]
    places = [note for note in reading.notes if note.kind in ("near", "country")]
    if asked.near is not None and (note := _explain_place(filter, places, catalog)):
        return replace(reading, notes=(*notes, note))
    note = _explain_others(filter, catalog)
    return reading if note is None else replace(reading, notes=(*reading.notes, note))


def _explain_place(filter: Filter, places: list[Note], catalog: Catalog) -> Note | None:
    located = catalog.count_photos(Filter(near=ANYWHERE))
    if not located:
        return Note("no_coordinates", count=catalog.count_photos(NO_FILTER))
    alone = Filter(near=filter.near)
    name = next((note.name for note in places), filter.near or "")
    for note in places:
        if note.kind == "country":
            alone, name = Filter(names=(fold(note.meaning),)), note.meaning
    if catalog.count_photos(alone):
        return None
    return Note("none_near", name, _list_names([place for place, *_ in catalog.places], "; "), count=located)


def _explain_others(filter: Filter, catalog: Catalog) -> Note | None:
    def is_met(condition: Filter) -> bool:
        return catalog.count_photos(condition) > 0

    if filter.folder is not None and not is_met(Filter(folder=filter.folder)):
        folders = catalog.facets.folders
        largest = sorted(folders, key=lambda folder: (folder.name.count("/"), -folder.photos))
        return Note("no_folder", filter.folder.strip("/"), _list_names([folder.name for folder in largest]))
    if filter.camera is not None and not is_met(Filter(camera=filter.camera)):
        return Note("no_camera", filter.camera)
    if filter.kind is not None and not is_met(Filter(kind=filter.kind)):
        return Note("no_kind", filter.kind, _list_names([kind.name for kind in catalog.facets.kinds]))
    if filter.undated and not is_met(Filter(undated=True)):
        return Note("none_undated")
    period = Filter(after=filter.after, before=filter.before)
    if period and not is_met(period):
        years = [year.name for year in catalog.facets.years]
        return Note("none_then", meaning=f"{years[-1]}/{years[0]}" if years else "")
    return None


def _list_names(names: list[str], separator: str = ", ") -> str:
    """Some names, and how many others there are."""
    others = len(names) - MOST_NAMED
    return separator.join(names[:MOST_NAMED]) + (f" and {others:,} more" if others > 0 else "")
