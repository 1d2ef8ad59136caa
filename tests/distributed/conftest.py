"""One cluster of two processes for all tests, and rows that a mixture has something to find in."""

import logging
import os

import dask
import numpy as np
import pytest

from fishermix.distributed.cluster import connect

# Dask knocks for so long at the door of a worker that was killed: half a minute, unless told otherwise.
os.environ["DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"] = "5s"  # of the processes to come
dask.config.refresh()


@pytest.fixture(scope="session")
def client():
    with connect("local:2") as client:
        client.forward_logging(level=logging.CRITICAL)
        yield client


@pytest.fixture(scope="session")
def rows():
    """(9000, 5) float32: three clusters, Gaussian in some dimensions and Laplacian in the others."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.standard_normal((3, 5))
    noise = np.hstack([rng.standard_normal((9000, 2)), rng.laplace(size=(9000, 3))])
    return (centres[rng.integers(3, size=9000)] + noise).astype(np.float32)
