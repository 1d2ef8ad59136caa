"""Data sets of photos and their sentences."""

from fishermix_photos.lab.datasets.dataset import SPLITS, Dataset, Protocol, combine
from fishermix_photos.lab.datasets.readers import KINDS, open_dataset

__all__ = ["KINDS", "SPLITS", "Dataset", "Protocol", "combine", "open_dataset"]
