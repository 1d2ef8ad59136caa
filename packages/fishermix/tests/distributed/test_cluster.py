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
from fishermix.distributed.cluster import connect
from fishermix.distributed.mixtures import ClusterSource, Part
from fishermix.errors import FishermixError
from fishermix.mixture import Mixture
from fishermix.rows.blocks import block_rows
from safetensors.numpy import save_file

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


# Mixtures


def test_an_array_and_files_on_the_workers_give_the_same_bits(client, rows, tmp_path, in_memory):
    np.save(tmp_path / "0.npy", rows[:2048])
    save_file({"rows": rows[2048:]}, tmp_path / "1.safetensors")
    parts = [tmp_path / "0.npy", tmp_path / "1.safetensors"]
    for source in (rows, parts):
        assert same_bits(fit(ClusterSource(source, client)), in_memory)
    assert same_bits(fit(ClusterSource(parts, client, keep=False)), in_memory)


def test_a_dask_array_goes_into_fit_as_it_is(client, rows, in_memory):
    fitted = fit(dask.array.from_array(rows, chunks=(1300, 2)))
    np.testing.assert_array_equal(fitted.choice_, in_memory.choice_)
    for name in ("weights_", "locations_", "scales_"):
        np.testing.assert_allclose(getattr(fitted, name), getattr(in_memory, name), rtol=1e-5)
    cut_as_in_memory = dask.array.from_array(rows, chunks=(block_rows(len(rows)), -1))
    assert same_bits(fit(cut_as_in_memory), in_memory)


@pytest.mark.parametrize("limit", [0.001, 4096])
def test_the_working_memory_changes_no_bit(limit, client, rows, in_memory, monkeypatch):
    monkeypatch.setattr("fishermix.mixture.em.WORKING_MEMORY", limit)
    source = ClusterSource(rows, client)
    assert same_bits(fit(source), in_memory)
    assert (source.traffic.passes > 40) == (limit == 0.001)


def test_sample_weights_travel_with_their_rows(client, rows):
    weight = np.random.default_rng(1).integers(0, 3, len(rows)).astype(float)
    here = Mixture(3, max_iter=2, tol=0, random_state=0).fit(rows, sample_weight=weight)
    assert same_bits(fit(ClusterSource(rows, client, weight), max_iter=2), here)


def test_only_statistics_travel(client, rows):
    source = ClusterSource(np.tile(rows, (4, 1)), client)
    fit(source, max_iter=3)
    statistic = 3 * 5 * 8
    # A step carries some twenty numbers for each (k, d) and the families; an answer has 32 bins, a few sums
    # and up to 256 values of 16 bytes.
    assert source.traffic.sent < source.traffic.passes * (40 * statistic + 6000)
    assert source.traffic.received < source.traffic.passes * (32 + 8 + 2 * 256) * statistic
    assert source.traffic.received < 0.2 * 4 * rows.nbytes * 3


def test_a_worker_killed_in_the_middle_changes_nothing(client, rows, in_memory):
    source = ClusterSource(rows, client)
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
    with connect(address) as lost:
        source = ClusterSource(rows, lost)
        total, iterations = source.total, []

        def total_with_a_death(step):
            iterations.append(not getattr(step, "again", True))
            if sum(iterations) == 7:
                scheduler.kill()
            return total(step)

        source.total = total_with_a_death
        with pytest.raises(FishermixError, match=r"The scheduler at tcp.* is gone.* last checkpoint"):
            fit(source, max_iter=8, checkpoint=folder)
    resumed = ClusterSource(rows, client)
    assert same_bits(fit(resumed, max_iter=8, checkpoint=folder), fit(rows, max_iter=8))
    assert resumed.traffic.passes < len(iterations) / 2


def test_no_scheduler_is_told(monkeypatch):
    monkeypatch.setattr("fishermix.distributed.cluster.SECONDS_TO_CONNECT", 0.2)
    with pytest.raises(FishermixError, match="No scheduler answers"), connect("tcp://127.0.0.1:1"):
        pass


def test_a_scheduler_without_workers_and_addresses_that_cannot_be_are_told(monkeypatch):
    monkeypatch.setattr("fishermix.distributed.cluster.SECONDS_TO_CONNECT", 2)
    with distributed.LocalCluster(n_workers=0, dashboard_address=None) as empty:
        address = empty.scheduler_address
        with pytest.raises(FishermixError, match=f"has no workers.*dask worker {address}"), connect(address):
            pass
    for address in ("tcp://127.0.0.1", "tcp://", "tcp://:port"):
        with pytest.raises(FishermixError, match="A cluster must be tcp://HOST:PORT"), connect(address):
            pass


def test_a_part_forgets_on_its_way_to_another_worker():
    """Else a copy left behind might answer a later pass with the posteriors of an earlier iteration."""
    part = Part(np.zeros((4, 2), np.float32), np.dtype(np.float32), None, 0, {"posteriors": [1]}, "first")
    copied = Part(**part.__getstate__())
    assert copied.memo == {}
    assert copied.iteration == ""


def test_bad_rows_are_told_by_the_workers(client, rows):
    broken = rows.copy()
    broken[4321, 2] = np.inf
    with pytest.raises(FishermixError, match="Row 4321 contains NaN or infinity"):
        fit(ClusterSource(broken, client))
    with pytest.raises(FishermixError, match="There is no file"):
        ClusterSource(["absent.npy"], client)


def test_a_wrong_cluster_is_told():
    with pytest.raises(FishermixError, match="tcp://HOST:PORT or local:N"), connect("two"):
        pass
