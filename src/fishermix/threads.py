"""How many threads fishermix uses: one rule for mixtures, Fisher vectors, networks and readers."""

from __future__ import annotations

import os


def available_threads() -> int:
    """The number of cores this process may use, or fewer if OMP_NUM_THREADS asks for fewer."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(wanted)) if wanted.isdigit() and int(wanted) > 0 else cores


def count_threads(n_jobs: int | None) -> int:
    """The number of threads `n_jobs` means, as in joblib: None or -1 is every core, -2 all but one."""
    if n_jobs is not None and n_jobs > 0:
        return n_jobs
    return max(available_threads() + 1 + (n_jobs or -1), 1)
