"""How much memory all pictures that are being decoded may take together, whatever the number of threads.

A thread holds what its picture needs before it decodes it, and waits for others if too little is left. To
exclude that threads wait for each other, whoever holds memory for pixels asks for no more files.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOST_BYTES_OF_PIXELS = 512 << 20
SHARE_OF_MEMORY = 1 / 16  # for pixels, on a machine with little memory


class MemoryBudget:
    """Bytes that threads share; whoever asks first gets them first.

    A request for more than all is granted when nobody else holds any.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.forget()

    def forget(self) -> None:
        """Nobody holds anything: in a forked process, the threads of its parent do not exist."""
        self.used = 0
        self._waiting: deque[Hold] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, size: int = 0) -> Iterator[Hold]:
        """Hold bytes in a `with` block; `Hold.take` and `Hold.shrink` change how many."""
        held = Hold(self)
        try:
            if size:
                held.take(size)
            yield held
        finally:
            held.shrink(0)


class Hold:
    """What one thread holds of a budget."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._size = 0

    def take(self, size: int) -> None:
        """Wait until `size` bytes are free and hold them, instead of what was held before."""
        self.shrink(0)
        budget, size = self._budget, min(size, self._budget.total)
        with budget._changed:
            budget._waiting.append(self)
            try:
                budget._changed.wait_for(
                    lambda: budget._waiting[0] is self and budget.used + size <= budget.total
                )
                budget.used += size
                self._size = size
            finally:
                budget._waiting.remove(self)
                budget._changed.notify_all()

    def shrink(self, size: int) -> None:
        """Hold at most `size` bytes."""
        with self._budget._changed:
            self._budget.used -= max(0, self._size - size)
            self._size = min(size, self._size)
            self._budget._changed.notify_all()


def memory_in_bytes() -> int | None:
    """The memory available to this process: RAM, or the container's limit if less; None if unknown."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        return min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return memory


def choose_bytes_of_pixels() -> int:
    """A sixteenth of the memory, and never more than 512 MB."""
    memory = memory_in_bytes()
    return min(MOST_BYTES_OF_PIXELS, int(memory * SHARE_OF_MEMORY)) if memory else MOST_BYTES_OF_PIXELS


PIXELS = MemoryBudget(choose_bytes_of_pixels())
FILES = MemoryBudget(PIXELS.total // 2)  # for the files that are decoded, before they are

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PIXELS.forget)
    os.register_at_fork(after_in_child=FILES.forget)
