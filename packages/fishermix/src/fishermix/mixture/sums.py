"""Sufficient statistics: typed sums that add up over blocks of rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np


@dataclass
class Sums:
    """Numbers, arrays and other sums, which are added, and lists, which are joined. None stays None."""

    def __iadd__(self, other: Self) -> Self:
        for field in fields(self):
            mine, more = getattr(self, field.name), getattr(other, field.name)
            if mine is not None:
                mine += more
                setattr(self, field.name, mine)
        return self

    @classmethod
    def of_zeros(cls, shape: tuple[int, ...]) -> Self:
        """Zeros of this shape, if all sums are arrays of one shape."""
        return cls(**{field.name: np.zeros(shape) for field in fields(cls)})

    def are_finite(self) -> bool:
        """Whether no number has overflowed the type of the rows."""
        return all(_is_finite(value) for value in vars(self).values())


def _is_finite(value: Any) -> bool:
    if isinstance(value, Sums):
        return value.are_finite()
    return value is None or isinstance(value, list) or bool(np.isfinite(value).all())
