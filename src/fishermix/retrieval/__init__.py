"""An index of the photos in a folder, its queries and explanations."""

from typing import TYPE_CHECKING

from fishermix import lazy

if TYPE_CHECKING:
    from fishermix.retrieval.details import Filter as Filter
    from fishermix.retrieval.explain import Explainer as Explainer
    from fishermix.retrieval.hits import Hits as Hits
    from fishermix.retrieval.index import PhotoIndex as PhotoIndex
    from fishermix.retrieval.query import Query as Query
    from fishermix.retrieval.query import encode_terms as encode_terms
    from fishermix.retrieval.query import parse_query as parse_query
    from fishermix.retrieval.sentences import SentencePool as SentencePool
    from fishermix.retrieval.store import Hit as Hit

_MODULE_OF = {
    "Explainer": "explain",
    "Filter": "details",
    "Hit": "store",
    "Hits": "hits",
    "PhotoIndex": "index",
    "Query": "query",
    "SentencePool": "sentences",
    "encode_terms": "query",
    "parse_query": "query",
}
__all__ = [
    "Explainer",
    "Filter",
    "Hit",
    "Hits",
    "PhotoIndex",
    "Query",
    "SentencePool",
    "encode_terms",
    "parse_query",
]
__getattr__ = lazy.export(__name__, _MODULE_OF)
