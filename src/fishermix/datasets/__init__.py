"""Data sets of photos and their sentences."""

from typing import TYPE_CHECKING

from fishermix import lazy

if TYPE_CHECKING:
    from fishermix.datasets.captions_file import read_folder as read_folder
    from fishermix.datasets.coco import read_coco as read_coco
    from fishermix.datasets.dataset import SPLITS as SPLITS
    from fishermix.datasets.dataset import Dataset as Dataset
    from fishermix.datasets.dataset import Protocol as Protocol
    from fishermix.datasets.dataset import combine as combine
    from fishermix.datasets.flickr import read_flickr8k as read_flickr8k
    from fishermix.datasets.flickr import read_flickr30k as read_flickr30k
    from fishermix.datasets.karpathy import read_karpathy as read_karpathy
    from fishermix.datasets.pascal1k import read_pascal1k as read_pascal1k
    from fishermix.datasets.registry import open_dataset as open_dataset

_MODULE_OF = {
    "SPLITS": "dataset",
    "Dataset": "dataset",
    "Protocol": "dataset",
    "combine": "dataset",
    "open_dataset": "registry",
    "read_coco": "coco",
    "read_flickr30k": "flickr",
    "read_flickr8k": "flickr",
    "read_folder": "captions_file",
    "read_karpathy": "karpathy",
    "read_pascal1k": "pascal1k",
}
__all__ = [
    "SPLITS",
    "Dataset",
    "Protocol",
    "combine",
    "open_dataset",
    "read_coco",
    "read_flickr8k",
    "read_flickr30k",
    "read_folder",
    "read_karpathy",
    "read_pascal1k",
]
__getattr__ = lazy.export(__name__, _MODULE_OF)
