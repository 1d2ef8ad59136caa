"""Work on a Dask cluster.

`cluster` connects to it; `mixtures` and `covariances` run on it.
"""

from typing import TYPE_CHECKING

from fishermix.runtime import export_lazily

if TYPE_CHECKING:
    from fishermix.distributed.cluster import connect as connect
    from fishermix.distributed.covariances import covariance_sums as covariance_sums
    from fishermix.distributed.covariances import encode_sentences as encode_sentences
    from fishermix.distributed.mixtures import ClusterSource as ClusterSource

_MODULE_OF = {
    "ClusterSource": "mixtures",
    "connect": "cluster",
    "covariance_sums": "covariances",
    "encode_sentences": "covariances",
}
__all__ = list(_MODULE_OF)
__getattr__ = export_lazily(__name__, _MODULE_OF)
