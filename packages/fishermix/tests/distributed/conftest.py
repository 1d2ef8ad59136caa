"""One cluster of two processes for all tests, and rows that a mixture has something to find in."""

import logging
import os

import dask
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
