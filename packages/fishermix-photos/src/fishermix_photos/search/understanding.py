"""Step 1 of a search: what the words of a query mean in a library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fishermix_photos.index.filters import Filter
from fishermix_photos.search.catalog import Catalog
from fishermix_photos.search.dates import parse_dates
from fishermix_photos.search.names import find_names
from fishermix_photos.search.notes import Note
from fishermix_photos.search.places import find_place, names_place
from fishermix_photos.search.reading import Reading, read_terms
from fishermix_photos.search.results import Query
from fishermix_photos.search.spelling import correct_terms
from fishermix_photos.search.terms import write_query

if TYPE_CHECKING:
    from fishermix_photos.model.model import ImageTextModel


def understand(query: Query, catalog: Catalog, model: Callable[[], ImageTextModel]) -> Reading:
    """The meaning of a query. `model` is called only if there is a need."""
    reading = read_terms(query.terms, query.filter)
    named = find_names(reading.terms, catalog.count_names, model)
    filter = reading.filter
    notes = list(reading.notes)
    place_notes = []
    if names_place(filter):
        filter, note = find_place(filter, catalog.places)
        place_notes.append(note)
    conditions = filter
    for name in named.required:
        count = catalog.count_photos(replace(conditions, names=(*conditions.names, name)))
        suggestion = write_query([named.quoted[name]])
        shown = catalog.count_photos(replace(conditions, texts=(*conditions.texts, name)))
        notes.append(
            Note("required", name.replace("|", " or "), "text" if shown else "", count, suggestion=suggestion)
        )
        filter = replace(filter, names=(*filter.names, name))
    notes += place_notes
    if filter.after is not None or filter.before is not None:
        notes += _count_left_out(query, filter, catalog)
    terms = named.terms
    if any(term.kind == "text" for term in terms):
        terms, corrections = correct_terms(terms, query.terms, catalog.has_name, model())
        notes += corrections
    preferred = []
    can_prefer = named.preferred and query.sort == "score" and model().calibration is not None
    for name in named.preferred if can_prefer else ():
        if count := catalog.count_photos(replace(filter, names=(*filter.names, name))):
            notes.append(Note("preferred", name, count=count))
            preferred.append(name)
    written = []
    for name in named.written if query.sort == "score" else ():
        if count := catalog.count_photos(replace(filter, texts=(*filter.texts, name))):
            notes.append(Note("written", name, count=count))
            written.append(name)
    return Reading(
        terms=terms,
        filter=filter,
        notes=tuple(notes),
        preferred=tuple(preferred),
        written=tuple(written),
    )


def _count_left_out(query: Query, filter: Filter, catalog: Catalog) -> list[Note]:
    """A note on the photos that a date leaves out because they have none of their own, if there are any."""
    undated = replace(filter, undated=True)
    count = catalog.count_photos(replace(undated, after=None, before=None)) - catalog.count_photos(undated)
    if not count:
        return []
    if query.filter.after is not None or query.filter.before is not None:
        return [Note("left_out", count=count)]
    terms = list(query.terms)
    for position, term in enumerate(terms):
        reading = parse_dates(term.value) if term.kind == "text" and not term.is_quoted else None
        if reading is not None and reading.is_date:
            terms[position] = replace(term, value=f"{reading.wanted} without a date".strip())
            break
    return [Note("left_out", count=count, suggestion=write_query(terms))]
