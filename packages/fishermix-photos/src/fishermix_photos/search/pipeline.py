"""A search. Read this file first: four steps, each of which takes values and gives a value.

reading = understand(query, catalog, model)             what the words mean: terms, filter, notes
vector  = embed_terms(reading.terms, model, ...)        what photos are compared with
hits    = find_nearest(query, reading, vector, index, ...)  the best photos with their scores
results = judge(hits, query, vector, model, index)      probabilities, order, merged copies

If near copies leave a page that is not full, the last two steps are done again with more hits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fishermix_photos.search.absence import explain_absence
from fishermix_photos.search.catalog import Catalog, ListPlaces
from fishermix_photos.search.excerpts import add_excerpts
from fishermix_photos.search.facets import sort_years
from fishermix_photos.search.judging import judge
from fishermix_photos.search.nearest import find_nearest, start_limit
from fishermix_photos.search.reading import Reading, explain_rare, explain_unknown
from fishermix_photos.search.results import Query, Results
from fishermix_photos.search.understanding import understand
from fishermix_photos.search.vectors import FindEmbedding, Sentences, embed_terms

if TYPE_CHECKING:
    from fishermix_photos.index.protocol import PhotoIndex
    from fishermix_photos.index.values import Scope
    from fishermix_photos.model.model import ImageTextModel


@dataclass(frozen=True, eq=False)
class PreparedQuery:
    """A query, and the embeddings of its sentences: an update checks it, then a search looks for it."""

    query: Query
    sentences: Sentences


def run_search(
    prepared: PreparedQuery,
    index: PhotoIndex,
    model: Callable[[], ImageTextModel],
    find_embedding: FindEmbedding,
    list_places: ListPlaces,
) -> Results:
    """What a query finds in an index.

    model : gives the model, which is not loaded for a query that is only a date or a name
    find_embedding : gives the embedding (d,) of a photo of the library by its id, or None
    list_places : gives the places of a scope
    """
    query = prepared.query
    scope = index.scope(query.folders)
    catalog = Catalog(index, scope, list_places)
    reading = understand(query, catalog, model)
    if not reading.terms:
        return add_excerpts(list_photos(query, reading, index, scope), reading, index)
    scope.expect_model(model().key)
    vector = embed_terms(reading.terms, model(), find_embedding, prepared.sentences)
    limit, results = start_limit(query), None
    while results is None:
        hits = find_nearest(query, reading, vector, index, scope.prefixes, limit)
        results = judge(hits, query, vector, model(), index)
        limit *= 4
    if not results.photos and not query.offset:
        reading = explain_absence(query.filter, reading, catalog)
    unknown = explain_unknown(vector.unknown_words, model(), query.terms, reading.notes)
    rare = explain_rare(query.terms, model(), [note.name for note in (*reading.notes, *unknown)])
    results = replace(results, notes=(*reading.notes, *unknown, *rare))
    return add_excerpts(results, reading, index)


def list_photos(query: Query, reading: Reading, index: PhotoIndex, scope: Scope) -> Results:
    """The photos that meet the filter of a query without terms, and the number of all of them."""
    order = "date" if query.sort == "score" else query.sort
    photos = index.list_files(scope.prefixes, reading.filter, order, query.n, query.offset)
    years = index.count_years(scope.prefixes, reading.filter)
    total = sum(years.values())
    if not total:
        catalog = Catalog(index, scope, lambda scope: index.places(scope.prefixes))
        reading = explain_absence(query.filter, reading, catalog)
    return Results(
        photos=tuple(photos),
        more=total > query.offset + query.n,
        total=total,
        years=sort_years(years, order),
        notes=reading.notes,
    )
