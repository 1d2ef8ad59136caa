"""Several networks side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fishermix.errors import FishermixError


class FusedEncoder:
    """The vectors of several image encoders, one after the other; the same verbs as one encoder."""

    def __init__(self, encoders: Sequence[Any]):
        self.encoders = list(encoders)
        self.view = self.encoders[0].view
        self.n_features = sum(encoder.n_features for encoder in self.encoders)
        self.key = "+".join(encoder.key for encoder in self.encoders)
        self.max_pixels_ = min(encoder.max_pixels_ for encoder in self.encoders)

    def transform(self, images: Sequence[Any]) -> np.ndarray:
        """(n, sum of the dimensions) of paths, bytes or Pillow images."""
        return np.hstack([encoder.transform(images) for encoder in self.encoders])

    def stream(self, images: Iterable[Any]) -> Iterator[tuple[int, np.ndarray | FishermixError]]:
        """(position, vector or what was wrong) of every image."""
        images = list(images)  # every encoder reads them all; a generator could be read once
        waiting: dict[int, dict[int, Any]] = {}
        for results in zip(*(encoder.stream(images) for encoder in self.encoders), strict=True):
            for number, (position, result) in enumerate(results):
                found = waiting.setdefault(position, {})
                found[number] = result
                if len(found) == len(self.encoders):
                    parts = [part for _, part in sorted(waiting.pop(position).items())]
                    errors = [part for part in parts if isinstance(part, FishermixError)]
                    yield position, errors[0] if errors else np.concatenate(parts)


def open_encoders(names: Sequence[str], view: str | None) -> Any:
    """One network, or several side by side."""
    from fishermix.vision.encoders import ImageEncoder

    encoders = [ImageEncoder(name, view=view) if view else ImageEncoder(name) for name in names]
    return encoders[0] if len(encoders) == 1 else FusedEncoder(encoders)
