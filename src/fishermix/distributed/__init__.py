"""Work on a Dask cluster.

`cluster` connects to it; `mixtures`, `covariances`, `sentences` and `images` run on it.
"""

from typing import TYPE_CHECKING

from fishermix import lazy

if TYPE_CHECKING:
    from fishermix.distributed.cluster import connect as connect
    from fishermix.distributed.covariances import covariance_sums as covariance_sums
    from fishermix.distributed.images import ClusterImageEncoder as ClusterImageEncoder
    from fishermix.distributed.mixtures import ClusterSource as ClusterSource
    from fishermix.distributed.sentences import encode_sentences as encode_sentences

_MODULE_OF = {
    "ClusterImageEncoder": "images",
    "ClusterSource": "mixtures",
    "connect": "cluster",
    "covariance_sums": "covariances",
    "encode_sentences": "sentences",
}
__all__ = [
    "ClusterImageEncoder",
    "ClusterSource",
    "connect",
    "covariance_sums",
    "encode_sentences",
]
__getattr__ = lazy.export(__name__, _MODULE_OF)
