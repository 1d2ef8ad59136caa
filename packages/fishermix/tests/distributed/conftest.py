"""One cluster of two processes for all tests, and rows that a mixture has something to find in."""

import logging
import os

import dask
import pytest
from distributed import Client, LocalCluster

# Dask knocks for so long at the door of a worker that was killed: half a minute, unless told otherwise.
os.environ["DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"] = "5s"  # of the processes to come
dask.config.refresh()


@pytest.fixture(scope="session")
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        client.forward_logging(level=logging.CRITICAL)
        yield client
