"""Sentences that a model ranks for a photo when the user gives none, with their points.

sentences/config.json                the sentences, where they come from, and the model's key
sentences/tensors-HASH.safetensors   their points, as int8; only the direction matters
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fishermix.errors import FishermixError
from fishermix.model.hubness import from_bytes, to_bytes
from fishermix.schemas import Struct, Text
from fishermix.storage import FolderKind, load_folder, require_tensor, save_folder


class PoolConfig(Struct):
    """`config.json` of a pool: `model_key` is that of the model whose points these are."""

    model_key: Text
    source: str
    sentences: list[Text]


KIND = FolderKind("sentence pool", 1, PoolConfig)


@dataclass(frozen=True, eq=False)
class Pool:
    """Sentences, their unit points (n, d), and a note on their source and license."""

    sentences: Sequence[str]
    points: np.ndarray
    source: str = ""

    def save(self, folder: str | os.PathLike, model_key: str) -> None:
        config = PoolConfig(model_key, self.source, list(self.sentences))
        save_folder(folder, KIND, config, {"points": to_bytes(self.points)})

    @classmethod
    def load(cls, folder: str | os.PathLike, model_key: str, dimension: int) -> Pool:
        """Read what `save` wrote for the model with this key."""
        config, tensors = load_folder(folder, KIND)
        if config.model_key != model_key:
            raise FishermixError(f"The sentences in {folder} were encoded by another model. Delete them.")
        shape = len(config.sentences), dimension
        points = require_tensor(tensors, "points", shape, folder, kinds="i")
        if points.dtype != np.int8 or not points.any(axis=1).all():
            raise FishermixError(f"{folder} is damaged: the points of the sentences are invalid.")
        return cls(config.sentences, from_bytes(points), config.source)
