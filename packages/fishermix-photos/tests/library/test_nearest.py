"""Exact search against a full sort, with and without codes."""

import math

import numpy as np
import pytest
from fishermix.joint.vectors import unit_rows
from fishermix_photos.index import nearest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@settings(max_examples=150, deadline=None)
@given(
    rows=st.integers(0, 60),
    queries=st.integers(1, 4),
    n=st.integers(1, 70),
    block=st.integers(1, 70),
    seed=st.integers(0, 10_000),
)
def test_equal_to_a_stable_full_sort(rows, queries, n, block, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-2, 3, size=(rows, 3)).astype(
        np.float32
    )  # small integers: many ties, exact products
    wanted = rng.integers(-2, 3, size=(queries, 3)).astype(np.float32)
    excluded = rng.choice(rows, size=rng.integers(0, rows + 1), replace=False) if rows else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "BLOCK_ROWS", block)
        found, scores = nearest.find_nearest_rows(vectors, wanted, n, excluded)
    alive = np.setdiff1d(np.arange(rows), excluded)
    for query, rows_found, scores_found in zip(wanted, found, scores):
        products = vectors[alive] @ query
        order = np.argsort(-products, kind="stable")[:n]
        np.testing.assert_array_equal(rows_found, alive[order])
        np.testing.assert_array_equal(scores_found, products[order])


def in_codes(points, folder):
    """The codes of the whole blocks of these points, from a file."""
    for old in folder.glob("codes-*"):
        old.unlink()
    nearest.build_codes(folder, 1, points)
    return nearest.open_codes(folder, 1, points.shape[1], len(points))


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(8, 90),
    dimension=st.integers(1, 40),
    block=st.integers(1, 40),
    n=st.integers(1, 100),
    spread=st.sampled_from([0.0, 1e-7, 1e-3, 1.0]),
    hubness=st.booleans(),
    n_excluded=st.integers(0, 90),
    seed=st.integers(0, 10_000),
)
def test_codes_change_no_bit_of_the_answer(
    tmp_path, rows, dimension, block, n, spread, hubness, n_excluded, seed
):
    """Near and exact ties (repeated points, tiny spreads), zero points, excluded rows, a column of ones and
    one that varies little, as the hubness has, and n beyond the index."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((3, dimension)) * rng.choice([0, 0.01, 1], dimension)
    points = centers[rng.integers(3, size=rows)] + spread * rng.standard_normal((rows, dimension))
    points = unit_rows(points) * (rng.random((rows, 1)) < 0.9)
    query = unit_rows(rng.standard_normal((1, dimension)))
    if hubness:
        ones = np.ones((rows, 1))
        points = np.hstack([points, 0.05 * rng.standard_normal((rows, 1)), ones])
        query = np.hstack([query, [[1.0, -0.03]]])
    points, query = points.astype(np.float32), query.astype(np.float32)
    excluded = rng.choice(rows, size=min(n_excluded, rows), replace=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "BLOCK_ROWS", block)
        codes = in_codes(points, tmp_path)
        assert (codes.n_rows if codes else 0) == rows // block * block
        found, scores = nearest.find_nearest_rows(points, query, n, excluded, codes)
    plain_found, plain_scores = nearest.find_nearest_rows(points, query, n, excluded)
    np.testing.assert_array_equal(found, plain_found)
    np.testing.assert_array_equal(scores, plain_scores)
    alive = np.setdiff1d(np.arange(rows), excluded)
    exact = np.array([math.fsum(row) for row in points[alive] * query[0].astype(np.float64)], np.float32)
    order = np.argsort(-exact, kind="stable")[:n]
    np.testing.assert_array_equal(found[0], alive[order])
    np.testing.assert_allclose(scores[0], exact[order], rtol=1e-7)


def test_codes_leave_few_points_to_read(tmp_path, monkeypatch):
    monkeypatch.setattr(nearest, "BLOCK_ROWS", 5000)
    rng = np.random.default_rng(0)
    points = unit_rows(rng.standard_normal((20_000, 64)))
    codes = in_codes(points, tmp_path)
    read = []
    exact = nearest._exact_scores
    monkeypatch.setattr(nearest, "_exact_scores", lambda *given: read.append(len(given[2])) or exact(*given))
    nearest.find_nearest_rows(points, unit_rows(rng.standard_normal((1, 64))), 10, (), codes)
    assert 20 <= sum(read) < 200


@pytest.mark.parametrize("damage", ["short", "nan", "name"])
def test_damaged_codes_are_not_used(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(nearest, "BLOCK_ROWS", 50)
    points = np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32)
    assert in_codes(points, tmp_path).match(points)
    file = tmp_path / "codes-1-2.i8"
    data = file.read_bytes()
    if damage == "name":
        file.rename(tmp_path / "codes-1-3.i8")
    else:
        file.write_bytes(data[:-1] if damage == "short" else b"\xff" * 8 + data[8:])
    assert nearest.open_codes(tmp_path, 1, 4, 120) is None
    nearest.build_codes(tmp_path, 1, points)  # the next update repairs them
    assert nearest.open_codes(tmp_path, 1, 4, 120).match(points)


def test_no_damage_of_codes_stops_a_search(tmp_path, monkeypatch):
    """Damaged codes may hide a photo, as any damaged file of an index may; `index verify` finds them."""
    monkeypatch.setattr(nearest, "BLOCK_ROWS", 50)
    rng = np.random.default_rng(0)
    points, query = (rng.standard_normal((n, 4)).astype(np.float32) for n in (120, 1))
    in_codes(points, tmp_path)
    file = tmp_path / "codes-1-2.i8"
    data = file.read_bytes()
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        damaged[rng.integers(24) if rng.random() < 0.8 else rng.integers(len(data))] = rng.integers(256)
        file.write_bytes(damaged)
        codes = nearest.open_codes(tmp_path, 1, 4, 120)
        refused += codes is None
        if codes:
            assert codes.match(points) == (bytes(damaged) == data)
            rows, scores = nearest.find_nearest_rows(points, query, 7, (), codes)
            np.testing.assert_allclose(scores[0], points[rows[0]] @ query[0], rtol=1e-5, atol=1e-6)
    assert 20 < refused < 280


def test_a_full_disk_leaves_no_codes(tmp_path, monkeypatch):
    def fail(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(nearest, "BLOCK_ROWS", 50)
    monkeypatch.setattr(nearest.os, "replace", fail)
    nearest.build_codes(tmp_path, 1, np.ones((60, 4), np.float32))
    assert list(tmp_path.iterdir()) == []


def test_points_that_are_not_finite_have_no_codes(tmp_path, monkeypatch):
    monkeypatch.setattr(nearest, "BLOCK_ROWS", 50)
    points = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    points[70, 1] = np.nan
    assert in_codes(points, tmp_path) is None


def test_a_query_that_is_no_number_is_near_nothing():
    query = np.full((1, 4), np.nan, np.float32)
    rows, scores = nearest.find_nearest_rows(np.eye(4, dtype=np.float32), query, 2)
    assert rows.shape == (1, 2)
    assert scores[0].tolist() == [-np.inf, -np.inf]


def test_damaged_points_come_last():
    vectors = np.eye(4, dtype=np.float32)
    vectors[1:3] = np.nan
    rows, scores = nearest.find_nearest_rows(vectors, np.ones((1, 4), np.float32), 3)
    assert rows[0].tolist() == [0, 3, 1]
    assert scores[0].tolist() == [1, 1, -np.inf]
