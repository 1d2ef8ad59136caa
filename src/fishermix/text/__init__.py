"""Word vectors, whitening and sentence vectors."""

from typing import TYPE_CHECKING

from fishermix import lazy

if TYPE_CHECKING:
    from fishermix.text.encoder import SentenceEncoder as SentenceEncoder
    from fishermix.text.tokens import tokenize as tokenize
    from fishermix.text.transformer import SentenceTransformer as SentenceTransformer
    from fishermix.text.vectors import WordVectors as WordVectors
    from fishermix.text.whitening import Whitening as Whitening

_MODULE_OF = {
    "SentenceEncoder": "encoder",
    "SentenceTransformer": "transformer",
    "Whitening": "whitening",
    "WordVectors": "vectors",
    "tokenize": "tokens",
}
__all__ = [
    "SentenceEncoder",
    "SentenceTransformer",
    "Whitening",
    "WordVectors",
    "tokenize",
]
__getattr__ = lazy.export(__name__, _MODULE_OF)
