"""Blocks of rows, and the sums of what is computed of them. Their order does not depend on threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from operator import iadd
from typing import Any, Protocol, TypeVar

import numpy as np

PANEL = 1024  # rows per kernel call: few enough for the L2 cache, enough to hide the cost of the call
GROUP = 8  # results that are added up before their sum is passed on


@dataclass
class Block:
    """Consecutive rows (n, D), C-ordered float32 or float64, and their weights (n,), or None for ones.

    `memo` keeps what one pass computes for the next one of the same iteration. It may be emptied at any time.
    """

    rows: np.ndarray
    weight: np.ndarray | None = None
    memo: dict[str, Any] = field(default_factory=dict)


class Addable(Protocol):
    """Sufficient statistics that add up over blocks."""

    def __iadd__(self, other: Any, /) -> Any: ...


S = TypeVar("S", bound=Addable)
BlockStep = Callable[[Block], S]


def block_rows(n_rows: int) -> int:
    """Return the number of rows per block into which an array of this many rows is cut.

    Returns
    -------
    size : int
        2,048 for up to 32,768 rows. Above, a sixteenth of the rows, rounded up to a multiple of 1,024, and at
        most 65,536.

    Examples
    --------
    >>> block_rows(5_000), block_rows(100_000)
    (2048, 7168)
    """
    blocks_of_array = 16  # enough for the threads of most machines
    size = -(-n_rows // (blocks_of_array * PANEL)) * PANEL
    return min(max(size, 2 * PANEL), 64 * PANEL)


def cut(n: int, size: int) -> list[slice]:
    """Cut 0, ..., n - 1 into slices of `size`; the last one may be shorter."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def sum_in_tree(results: Iterable[S]) -> S:
    """Add up every GROUP results, then every GROUP of these sums, and so on.

    Machines can add in this order too, each its own branches, and get the same bits.
    """
    sums: list[S | None] = []  # of results, of groups of these, ...: one group in work per level
    for number, result in enumerate(results):
        for level in count():
            if level == len(sums):
                sums.append(None)
            if (total := sums[level]) is not None:
                result = iadd(total, result)
            number, place = divmod(number, GROUP)
            sums[level] = result if place < GROUP - 1 else None
            if place < GROUP - 1:
                break
    total = None
    for unfinished in sums:
        if unfinished is not None:
            total = unfinished if total is None else iadd(unfinished, total)
    assert total is not None
    return total
