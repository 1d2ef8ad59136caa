"""`Dataset`, the result of every reader: images, sentences, which sentence belongs to which image, splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from fishermix.errors import FishermixError

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Protocol:
    """A seeded random split: numbers of validation and test images; the others are training images.

    repeats : how often the paper repeats its experiment
    """

    dev: int
    test: int
    repeats: int

    def draw(self, n_images: int, repeat: int) -> np.ndarray:
        """The split names (n_images,) of one repeat, counted from 0; `repeat` is the seed."""
        if n_images <= self.dev + self.test:
            raise FishermixError(
                f"The paper's split needs more than {self.dev} validation and {self.test} test images, but "
                f"there are only {n_images} images. Is the data set complete?",
                code="too_few",
            )
        order = np.random.default_rng(repeat).permutation(n_images)
        splits = np.full(n_images, "train", dtype="U5")
        splits[order[: self.test]] = "test"
        splits[order[self.test : self.test + self.dev]] = "dev"
        return splits


@dataclass(frozen=True, repr=False)
class Dataset:
    """Images and their sentences; each image has one or more sentences.

    image_names, image_paths : of the images
    image_of : int64 (n_sentences,), the row of the image that each sentence describes
    splits : str (n_images,), "train", "dev", "test", or "" for an image in no split
    protocol : the paper's random splits, for a set without official splits
    """

    name: str
    image_names: list[str]
    image_paths: list[Path]
    sentences: list[str]
    image_of: np.ndarray
    splits: np.ndarray
    protocol: Protocol | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "image_of", np.asarray(self.image_of, dtype=np.int64))
        object.__setattr__(self, "splits", np.asarray(self.splits, dtype="U5"))
        n_images = len(self.image_names)
        if len(self.image_paths) != n_images or self.splits.shape != (n_images,):
            raise ValueError("image_names, image_paths and splits must have one entry per image.")
        if self.image_of.shape != (len(self.sentences),):
            raise ValueError("image_of must have one entry per sentence.")
        if not np.isin(self.image_of, np.arange(n_images)).all():
            raise ValueError("image_of contains the row of an image that does not exist.")

    def __repr__(self) -> str:
        return f"Dataset({self.name}: {len(self)} images {self.counts()}, {len(self.sentences)} sentences)"

    def __len__(self) -> int:
        """The number of images."""
        return len(self.image_names)

    @property
    def repeats(self) -> int:
        """The number of times the paper repeats its experiment on this set."""
        return self.protocol.repeats if self.protocol else 1

    def counts(self) -> dict[str, int]:
        """The number of images in train, dev, test and "" (no split), in this order, without empty ones."""
        found = Counter(self.splits.tolist())
        return {split: found[split] for split in (*SPLITS, "") if found[split]}

    def select(self, image_rows: Sequence[int] | np.ndarray) -> Dataset:
        """The images of these rows, each once, in this order, with all their sentences, ordered by image."""
        rows = np.asarray(image_rows, dtype=np.int64)
        new_row = np.full(len(self), -1, dtype=np.int64)
        new_row[rows] = np.arange(len(rows))
        image_of = new_row[self.image_of]
        kept = np.flatnonzero(image_of >= 0)
        kept = kept[np.argsort(image_of[kept], kind="stable")]
        return replace(
            self,
            image_names=[self.image_names[row] for row in rows],
            image_paths=[self.image_paths[row] for row in rows],
            sentences=[self.sentences[row] for row in kept],
            image_of=image_of[kept],
            splits=self.splits[rows],
        )

    def part(self, split: str) -> Dataset:
        """The images of one split: "train", "dev" or "test"."""
        rows = np.flatnonzero(self.splits == split)
        if not len(rows):
            found = ", ".join(f"{count} {name or 'in no split'}" for name, count in self.counts().items())
            raise FishermixError(
                f"{self.name} has no images in the split '{split}'. It has: {found}.", code="too_few"
            )
        return self.select(rows)

    def sample(self, split: str, n_images: int, seed: int = 0) -> Dataset:
        """Random images of a split, in their original order, such as the paper's 1,000 COCO test images."""
        part = self.part(split)
        if not 0 < n_images <= len(part):
            raise FishermixError(
                f"Cannot draw {n_images} of the {len(part)} images in the {split} split of {self.name}.",
                code="too_few",
            )
        return part.select(np.sort(np.random.default_rng(seed).permutation(len(part))[:n_images]))

    def paper_splits(self, repeat: int) -> Dataset:
        """The paper's random split number `repeat`, from 0; a set with official splits returns itself."""
        if self.protocol is None:
            return self
        return replace(self, splits=self.protocol.draw(len(self), repeat))


def combine(datasets: Sequence[Dataset]) -> Dataset:
    """Concatenate the images, sentences and splits of several sets.

    Returns
    -------
    dataset : Dataset

    Examples
    --------
    >>> from fishermix_lab.datasets.readers import open_dataset
    >>> len(combine([open_dataset("flickr8k:DIR").part("test"), open_dataset("folder:holiday")]).sentences)
    210
    """
    if len(datasets) == 1:
        return datasets[0]
    starts = np.cumsum([0, *map(len, datasets)])
    return Dataset(
        name="+".join(dataset.name for dataset in datasets),
        image_names=[name for dataset in datasets for name in dataset.image_names],
        image_paths=[path for dataset in datasets for path in dataset.image_paths],
        sentences=[sentence for dataset in datasets for sentence in dataset.sentences],
        image_of=np.concatenate([dataset.image_of + start for dataset, start in zip(datasets, starts)]),
        splits=np.concatenate([dataset.splits for dataset in datasets]),
    )
