"""Readers of captioned image sets with one result type: `open_dataset("flickr8k:DIR")`."""

from fishermix.datasets.dataset import SPLITS, Dataset, Protocol, combine
from fishermix.datasets.registry import open_dataset

__all__ = ["SPLITS", "Dataset", "Protocol", "combine", "open_dataset"]
