"""The hubness correction of cosines (CSLS), measured against banks of training embeddings.

In a space of many dimensions some items are near every query (Radovanovic et al., 2010). Such hubs displace
the right answers. The hubness r of an item of the left side is its mean cosine with its k nearest items in a
bank of training items of the right side, and the other way round. Then

    score = cosine - r(left) / 2 - r(right) / 2,

where r is measured from its mean over the bank, so that scores stay on the scale of the cosine. This is half
of the measure CSLS (Conneau et al., 2018) with banks from the training set (Bogolin et al., 2022): a pair's
score does not depend on the rest of the collection. It is the dot product of two longer vectors,
(left, -r / 2, 1) and (right, 1, -r / 2), so any index of dot products can compute it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from fishermix.errors import FishermixError
from fishermix.joint.vectors import from_bytes, to_bytes
from fishermix.saved import FolderKind, Number, SavedFolder, Size, Struct, field, save_folder

BLOCK_CELLS = 8_000_000  # 32 MB of cosines at a time: few enough to fit, enough for a full-speed product


class HubnessConfig(Struct):
    """The numbers of a saved hubness correction. Its files call the sides images and sentences."""

    neighbors: Size
    left_mean: Number = field(name="mean_of_images")
    right_mean: Number = field(name="mean_of_sentences")


HUBNESS_KIND = FolderKind(
    name="hubness", version=1, schema=HubnessConfig, tensors={"images": "int m d", "sentences": "int n d"}
)


@dataclass(frozen=True, eq=False)
class HubnessCorrection:
    """Banks of training embeddings (m, d) and (n, d) of both sides, as int8; only directions matter.

    neighbors : the number of nearest embeddings whose cosines are averaged
    left_mean, right_mean : the mean hubness of each bank
    """

    left: np.ndarray
    right: np.ndarray
    neighbors: int
    left_mean: float = 0.0
    right_mean: float = 0.0

    @classmethod
    def from_embeddings(cls, left: np.ndarray, right: np.ndarray, neighbors: int) -> HubnessCorrection:
        """Banks of unit embeddings; zero rows, such as sentences without a known word, are skipped."""
        banks = cls(to_bytes(left), to_bytes(right), neighbors)
        left_mean = float(banks.of_left(banks.left_bank).mean())
        right_mean = float(banks.of_right(banks.right_bank).mean())
        return replace(banks, left_mean=left_mean, right_mean=right_mean)

    def of_left(self, embeddings: np.ndarray) -> np.ndarray:
        """The hubness (n,) of unit embeddings (n, d) of the left side."""
        return _mean_of_largest(embeddings, self.right_bank, self.neighbors) - self.left_mean

    def of_right(self, embeddings: np.ndarray) -> np.ndarray:
        """The hubness (n,) of unit embeddings (n, d) of the right side."""
        return _mean_of_largest(embeddings, self.left_bank, self.neighbors) - self.right_mean

    def measure(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The hubness of unit embeddings of the left side, and of those of the right side."""
        return self.of_left(left), self.of_right(right)

    def csls_left(self, embeddings: np.ndarray) -> np.ndarray:
        """(n, d + 2): the dot product with `csls_right` is the score. A zero row stays zero."""
        return _append_columns(embeddings, -0.5 * self.of_left(embeddings), 1.0)

    def csls_right(self, embeddings: np.ndarray) -> np.ndarray:
        """(n, d + 2): the dot product with `csls_left` is the score. A zero row stays zero."""
        return _append_columns(embeddings, 1.0, -0.5 * self.of_right(embeddings))

    def score_bank(self, query: np.ndarray) -> np.ndarray:
        """The scores (m,) of a row of `csls_right` with the bank of the left side.

        The hubness of the bank itself does not count: its mean is zero.
        """
        return self.left_bank @ query[:-2] + query[-1]

    def find_nearness(self, embedding: np.ndarray) -> float:
        """The largest cosine of a unit embedding (d,) of the right side with the bank of its own side."""
        return float((self.right_bank @ embedding).max())

    @cached_property
    def left_bank(self) -> np.ndarray:
        """Unit embeddings (m, d) float32."""
        return from_bytes(self.left)

    @cached_property
    def right_bank(self) -> np.ndarray:
        """Unit embeddings (n, d) float32."""
        return from_bytes(self.right)

    @cached_property
    def key(self) -> str:
        """Identifies the correction."""
        digest = hashlib.sha256(self.right.tobytes() + self.left.tobytes())
        return f"{digest.hexdigest()} {self.neighbors} {self.left_mean} {self.right_mean}"

    def save(self, folder: Path) -> None:
        """Write the banks as a folder."""
        config = HubnessConfig(self.neighbors, self.left_mean, self.right_mean)
        save_folder(folder, HUBNESS_KIND, config, {"images": self.left, "sentences": self.right})

    @classmethod
    def from_saved(cls, saved: SavedFolder, dimension: int) -> HubnessCorrection:
        """Make the correction of a folder that was read."""
        config = saved.config
        left = saved.tensors["images"]
        right = saved.tensors["sentences"]
        for bank in (left, right):
            is_sound = bank.dtype == np.int8 and len(bank) and bank.any(axis=1).all()
            if not is_sound or bank.shape[1] != dimension:
                raise FishermixError(
                    f"{saved.folder} is damaged: a bank of embeddings is invalid.", code="damaged"
                )
        return cls(left, right, config.neighbors, config.left_mean, config.right_mean)


def _mean_of_largest(embeddings: np.ndarray, bank: np.ndarray, k: int) -> np.ndarray:
    """Mean (n,) of the k largest dot products of each row with the rows of `bank`, or of all if k is more."""
    k = min(k, len(bank))
    means = np.empty(len(embeddings), np.float32)
    rows = max(1, BLOCK_CELLS // len(bank))
    for start in range(0, len(embeddings), rows):
        cosines = np.asarray(embeddings[start : start + rows], np.float32) @ bank.T
        cosines.partition(-k, axis=1)
        means[start : start + rows] = cosines[:, -k:].mean(axis=1)
    return means


def _append_columns(embeddings: np.ndarray, *columns: np.ndarray | float) -> np.ndarray:
    embeddings = np.asarray(embeddings, np.float32)
    longer = np.zeros((len(embeddings), embeddings.shape[1] + len(columns)), np.float32)
    longer[:, : embeddings.shape[1]] = embeddings
    for number, column in enumerate(columns, embeddings.shape[1]):
        longer[:, number] = np.where(embeddings.any(axis=1), column, 0)
    return longer
