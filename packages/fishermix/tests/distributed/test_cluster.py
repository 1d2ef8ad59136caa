"""What runs on a cluster of two processes gives what one process gives."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import dask.array
import distributed
import numpy as np
import pytest
from distributed.protocol import pickle
from fishermix.mixture import Mixture
from fishermix.rows import block_rows
from fishermix.rows.distributed import ClusterSource, Part
from refuses import refuses

pytestmark = pytest.mark.slow  # a cluster starts
FITTED = ("weights_", "locations_", "scales_", "choice_")


def fit(rows, max_iter=4, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Mixture(3, max_iter=max_iter, tol=0, random_state=0, **options).fit(rows)


@pytest.fixture(scope="module")
def in_memory(rows):
    return fit(rows)


def same_bits(first, second):
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in FITTED)


def cut_as_in_memory(rows):
    return dask.array.from_array(rows, chunks=(block_rows(len(rows)), -1))


class Counted:
    """A source that counts its passes and the bytes between client and cluster."""

    def __init__(self, source):
        self.passes = self.sent = self.received = 0
        self._total, source.total = source.total, self.total

    def total(self, step):
        found = self._total(step)
        self.passes += 1
        self.sent += len(pickle.dumps(step))
        self.received += count_bytes(found)
        return found


def count_bytes(value):
    if isinstance(value, dict | list | tuple):
        return sum(map(count_bytes, value.values() if isinstance(value, dict) else value))
    return getattr(value, "nbytes", 8)


def test_a_dask_array_goes_into_fit_as_it_is(client, rows, in_memory):
    fitted = fit(dask.array.from_array(rows, chunks=(1300, 2)))
    np.testing.assert_array_equal(fitted.choice_, in_memory.choice_)
    for name in ("weights_", "locations_", "scales_"):
        np.testing.assert_allclose(getattr(fitted, name), getattr(in_memory, name), rtol=1e-5)
    assert same_bits(fit(cut_as_in_memory(rows)), in_memory)


@pytest.mark.parametrize("limit", [0.001, 4096])
def test_the_working_memory_changes_no_bit(limit, client, rows, in_memory):
    source = ClusterSource(cut_as_in_memory(rows))
    traffic = Counted(source)
    assert same_bits(fit(source, working_memory=limit), in_memory)
    assert (traffic.passes > 40) == (limit == 0.001)


def test_sample_weights_travel_with_their_rows(client, rows):
    weight = np.random.default_rng(1).integers(0, 3, len(rows)).astype(float)
    here = Mixture(3, max_iter=2, tol=0, random_state=0).fit(rows, sample_weight=weight)
    assert same_bits(fit(ClusterSource(cut_as_in_memory(rows), weight), max_iter=2), here)


def test_only_statistics_travel(client, rows):
    source = ClusterSource(cut_as_in_memory(np.tile(rows, (4, 1))))
    traffic = Counted(source)
    fit(source, max_iter=3)
    statistic = 3 * 5 * 8
    # A step carries some twenty numbers for each (k, d) and the families; an answer has 32 bins, a few sums
    # and up to 256 values of 16 bytes.
    assert traffic.sent < traffic.passes * (40 * statistic + 6000)
    assert traffic.received < traffic.passes * (32 + 8 + 2 * 256) * statistic
    assert traffic.received < 0.2 * 4 * rows.nbytes * 3


def test_a_worker_killed_in_the_middle_changes_nothing(client, rows, in_memory):
    source = ClusterSource(cut_as_in_memory(rows))
    total, passes = source.total, []

    def total_with_a_death(step):
        passes.append(step)
        if len(passes) == 4:
            victim = next(iter(client.run(os.getpid).values()))
            threading.Timer(0.02, os.kill, (victim, signal.SIGKILL)).start()
        return total(step)

    source.total = total_with_a_death
    assert same_bits(fit(source), in_memory)
    client.wait_for_workers(2)


@pytest.fixture
def doomed(tmp_path):
    """A scheduler that can be killed, with a worker: (process, address)."""
    file = tmp_path / "scheduler.json"

    def start(*command):
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *command, "--no-dashboard"], stderr=subprocess.DEVNULL
        )

    scheduler = start("scheduler", "--port", "0", "--scheduler-file", str(file))
    worker = start("worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny")
    while not file.exists() or not file.read_text().strip().endswith("}"):
        time.sleep(0.05)
    yield scheduler, json.loads(file.read_text())["address"]
    for process in (worker, scheduler):
        process.kill()
        process.wait()


def test_a_killed_scheduler_is_told_and_the_fit_goes_on_elsewhere(client, doomed, rows, tmp_path):
    scheduler, address = doomed
    folder = tmp_path / "checkpoint"
    with distributed.Client(address):
        source = ClusterSource(cut_as_in_memory(rows))
        total, iterations = source.total, []

        def total_with_a_death(step):
            iterations.append(not getattr(step, "again", True))
            if sum(iterations) == 7:
                scheduler.kill()
            return total(step)

        source.total = total_with_a_death
        with refuses("cluster"):
            fit(source, max_iter=8, checkpoint=folder)
    resumed = ClusterSource(cut_as_in_memory(rows))
    traffic = Counted(resumed)
    assert same_bits(fit(resumed, max_iter=8, checkpoint=folder), fit(rows, max_iter=8))
    assert traffic.passes < len(iterations) / 2


def test_a_part_forgets_on_its_way_to_another_worker():
    """Else a copy left behind might answer a later pass with the posteriors of an earlier iteration."""
    part = Part(np.zeros((4, 2), np.float32), None, {"posteriors": [1]}, "first")
    copied = Part(**part.__getstate__())
    assert copied.memo == {}
    assert copied.iteration == ""


def test_bad_rows_are_told_by_the_workers(client, rows):
    broken = rows.copy()
    broken[4321, 2] = np.inf
    with refuses("not_finite"):
        fit(cut_as_in_memory(broken))


def test_chunks_must_be_known_rows(client, rows):
    array = cut_as_in_memory(rows)
    with refuses("wrong_shape"):
        fit(array[:, 0])
    with refuses("wrong_shape"):
        fit(array[array[:, 0] > 0])
