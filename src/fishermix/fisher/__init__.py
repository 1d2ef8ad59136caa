"""Fisher vectors of sets of vectors."""

from typing import TYPE_CHECKING

from fishermix import lazy

if TYPE_CHECKING:
    from fishermix.fisher.encoder import FisherEncoder as FisherEncoder
    from fishermix.fisher.sets import OnRows as OnRows

_MODULE_OF = {
    "FisherEncoder": "encoder",
    "OnRows": "sets",
}
__all__ = [
    "FisherEncoder",
    "OnRows",
]
__getattr__ = lazy.export(__name__, _MODULE_OF)
