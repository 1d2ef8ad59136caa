"""Exact search against a full sort, and the threshold against what it promises."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fishermix.model.joint_space import unit_rows
from fishermix.retrieval import exact_search, point_codes
from fishermix.retrieval.threshold import estimate_threshold


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
        patch.setattr(exact_search, "BLOCK_ROWS", block)
        found, scores = exact_search.find_nearest(vectors, wanted, n, excluded)
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
    point_codes.build_codes(folder, 1, points)
    return point_codes.open_codes(folder, 1, points.shape[1], len(points))


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
        patch.setattr(point_codes, "ROWS", block)
        codes = in_codes(points, tmp_path)
        assert (codes.n_rows if codes else 0) == rows // block * block
        found, scores = exact_search.find_nearest(points, query, n, excluded, codes)
    plain_found, plain_scores = exact_search.find_nearest(points, query, n, excluded)
    np.testing.assert_array_equal(found, plain_found)
    np.testing.assert_array_equal(scores, plain_scores)
    alive = np.setdiff1d(np.arange(rows), excluded)
    exact = np.array([math.fsum(row) for row in points[alive] * query[0].astype(np.float64)], np.float32)
    order = np.argsort(-exact, kind="stable")[:n]
    np.testing.assert_array_equal(found[0], alive[order])
    np.testing.assert_allclose(scores[0], exact[order], rtol=1e-7)


def test_codes_leave_few_points_to_read(tmp_path, monkeypatch):
    monkeypatch.setattr(point_codes, "ROWS", 5000)
    rng = np.random.default_rng(0)
    points = unit_rows(rng.standard_normal((20_000, 64)))
    codes = in_codes(points, tmp_path)
    read = []
    exact = exact_search._exact_scores
    monkeypatch.setattr(
        exact_search, "_exact_scores", lambda *given: read.append(len(given[2])) or exact(*given)
    )
    exact_search.find_nearest(points, unit_rows(rng.standard_normal((1, 64))), 10, (), codes)
    assert 20 <= sum(read) < 200


@pytest.mark.parametrize("damage", ["short", "nan", "name"])
def test_damaged_codes_are_not_used(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(point_codes, "ROWS", 50)
    points = np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32)
    assert in_codes(points, tmp_path).match(points)
    file = tmp_path / "codes-1-2.i8"
    data = file.read_bytes()
    if damage == "name":
        file.rename(tmp_path / "codes-1-3.i8")
    else:
        file.write_bytes(data[:-1] if damage == "short" else b"\xff" * 8 + data[8:])
    assert point_codes.open_codes(tmp_path, 1, 4, 120) is None
    point_codes.build_codes(tmp_path, 1, points)  # the next update repairs them
    assert point_codes.open_codes(tmp_path, 1, 4, 120).match(points)


def test_no_damage_of_codes_stops_a_search(tmp_path, monkeypatch):
    """Damaged codes may hide a photo, as any damaged file of an index may; `index verify` finds them."""
    monkeypatch.setattr(point_codes, "ROWS", 50)
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
        codes = point_codes.open_codes(tmp_path, 1, 4, 120)
        refused += codes is None
        if codes:
            assert codes.match(points) == (bytes(damaged) == data)
            rows, scores = exact_search.find_nearest(points, query, 7, (), codes)
            np.testing.assert_allclose(scores[0], points[rows[0]] @ query[0], rtol=1e-5, atol=1e-6)
    assert 20 < refused < 280


def test_a_full_disk_leaves_no_codes(tmp_path, monkeypatch):
    def fail(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(point_codes, "ROWS", 50)
    monkeypatch.setattr(point_codes.os, "replace", fail)
    point_codes.build_codes(tmp_path, 1, np.ones((60, 4), np.float32))
    assert list(tmp_path.iterdir()) == []


def test_points_that_are_not_finite_have_no_codes(tmp_path, monkeypatch):
    monkeypatch.setattr(point_codes, "ROWS", 50)
    points = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    points[70, 1] = np.nan
    assert in_codes(points, tmp_path) is None


def test_a_query_that_is_no_number_is_near_nothing():
    rows, scores = exact_search.find_nearest(
        np.eye(4, dtype=np.float32), np.full((1, 4), np.nan, np.float32), 2
    )
    assert rows.shape == (1, 2)
    assert scores[0].tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("n", [50, 1000, 20_000])
def test_hardly_anything_unrelated_passes_the_threshold(n):
    rng = np.random.default_rng(0)
    passed = [
        np.sum(scores >= estimate_threshold(scores, scores.max()))
        for scores in rng.normal(0.1, 0.05, size=(40, n))
    ]
    assert 0.2 < np.mean(passed) < 3


def test_matches_pass_the_cut_and_do_not_raise_it():
    rng = np.random.default_rng(1)
    background = rng.normal(0, 0.05, size=1000)
    matches = rng.normal(0.5, 0.05, size=150)
    threshold = estimate_threshold(np.concatenate([background, matches]), matches.max())
    assert np.mean(matches >= threshold) > 0.99
    assert np.mean(background >= threshold) < 0.01


@settings(deadline=None)
@given(st.floats(0.01, 10), st.floats(-5, 5))
def test_the_threshold_moves_with_the_scores(scale, shift):
    scores = np.random.default_rng(2).normal(size=200)
    for best in (0.5, 9.0):
        moved = estimate_threshold(scale * scores + shift, scale * best + shift)
        assert moved == pytest.approx(scale * estimate_threshold(scores, best) + shift, abs=1e-9)


def test_a_photo_that_stands_far_out_leaves_the_half_matches_behind():
    scores = np.random.default_rng(3).normal(0, 0.05, size=1000)
    assert estimate_threshold(scores, 0.2) < 0.2
    assert estimate_threshold(scores, 0.9) == pytest.approx(0.45, abs=0.01)


def test_a_handful_of_photos_has_no_threshold():
    assert estimate_threshold(np.array([0.1, 0.2, 0.9]), 0.9) == -np.inf


def test_damaged_points_come_last():
    vectors = np.eye(4, dtype=np.float32)
    vectors[1:3] = np.nan
    rows, scores = exact_search.find_nearest(vectors, np.ones((1, 4), np.float32), 3)
    assert rows[0].tolist() == [0, 3, 1]
    assert scores[0].tolist() == [1, 1, -np.inf]
