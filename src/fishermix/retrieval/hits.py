"""The result of a search, and its thumbnails in a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fishermix.errors import FishermixError
from fishermix.retrieval.photo_files import replace_undecodable
from fishermix.retrieval.store import Hit

if TYPE_CHECKING:
    from fishermix.retrieval.index import PhotoIndex

MOST_THUMBNAILS, THUMBNAIL_SIDE = 24, 160  # of hits in a notebook


class Hits(list[Hit]):
    """The result of a search: a list of `Hit`, which a notebook shows as thumbnails.

    Parameters
    ----------
    hits : iterable of Hit
        The photos, best first.
    index : PhotoIndex
        The index that was searched.
    """

    def __init__(self, hits: Iterable[Hit], index: PhotoIndex):
        super().__init__(hits)
        self._index = index

    def _repr_html_(self) -> str:
        from base64 import b64encode
        from html import escape

        from fishermix.retrieval.contact_sheet import make_thumbnail

        cards = []
        for hit in self[:MOST_THUMBNAILS]:
            text = f"{hit.score:.3f}<br>{escape(replace_undecodable(hit.path))}"
            try:
                data = b64encode(make_thumbnail(self._index.path(hit), THUMBNAIL_SIDE)).decode()
                picture = f'<img alt="" src="data:image/jpeg;base64,{data}">'
            except FishermixError as error:
                picture = escape(str(error))
            cards.append(f'<div style="max-width: {THUMBNAIL_SIDE}px">{picture}<br>{text}</div>')
        more = len(self) - len(cards)
        rest = f"<p>and {more:,} more</p>" if more else ""
        return f'<div style="display: flex; flex-wrap: wrap; gap: 1em">{"".join(cards)}</div>{rest}'
