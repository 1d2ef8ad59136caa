"""Panels against the dense matrices of numpy; several panels even where the matrix is small."""

import numpy as np
import pytest
from fishermix.cca.cholesky import SymmetricPanels
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hilbert


def panels_of(rows, dtype, width):
    panels = SymmetricPanels(rows.shape[1], dtype, width)
    panels.add_product(rows, rows)
    return panels


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 40), width=st.integers(1, 17), seed=st.integers(0, 2**32 - 1))
def test_every_operation_equals_the_dense_one(size, width, seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((size + 3, size))
    matrix = panels_of(rows, np.float64, width)
    dense = rows.T @ rows
    np.testing.assert_allclose(matrix.dense(), dense, atol=1e-12)
    vector = rng.standard_normal(size)
    np.testing.assert_allclose(matrix.dot(vector), dense @ vector, atol=1e-10)
    factor = matrix.cholesky(0.5)
    lower = np.linalg.cholesky(dense + 0.5 * np.eye(size))
    right = rng.standard_normal((size, 3))
    np.testing.assert_allclose(factor.solve(right.copy()), np.linalg.solve(lower, right), atol=1e-9)
    np.testing.assert_allclose(
        factor.solve_transposed(right.copy()), np.linalg.solve(lower.T, right), atol=1e-9
    )


@pytest.mark.parametrize("size", [10, 65, pytest.param(256, marks=pytest.mark.slow)])
def test_the_inverses_of_ill_conditioned_panels_are_exact_on_both_sides(size):
    matrix = SymmetricPanels(size, np.float64, size)
    matrix.panels[0][:] = hilbert(size)
    inverse = matrix.cholesky(1e-10).inverses[0]
    lower = np.linalg.cholesky(hilbert(size) + 1e-10 * np.eye(size))
    assert not np.triu(inverse, 1).any()
    np.testing.assert_allclose(inverse @ lower, np.eye(size), atol=1e-11)
    np.testing.assert_allclose(lower @ inverse, np.eye(size), atol=1e-9)


@pytest.mark.parametrize("size", [1, 2, 64, 65, 200])
def test_largest_eigenvalue(size):
    rows = np.random.default_rng(size).standard_normal((300, size))
    expected = np.linalg.eigvalsh(rows.T @ rows)[-1]
    assert panels_of(rows, np.float64, 48).largest_eigenvalue() == pytest.approx(expected, rel=1e-6)


def test_the_largest_eigenvalue_of_nothing_is_nothing():
    assert SymmetricPanels(100, np.float32).largest_eigenvalue() == 0


@pytest.mark.slow
def test_single_precision_stays_single_and_close():
    rows = np.random.default_rng(0).standard_normal((900, 700)).astype(np.float32)
    matrix = panels_of(rows, np.float32, 128)
    assert {panel.dtype for panel in matrix.panels} == {np.dtype(np.float32)}
    right = np.random.default_rng(1).standard_normal((700, 5)).astype(np.float32)
    factor = matrix.cholesky(10.0)
    solved = factor.solve_transposed(factor.solve(right.copy()))
    assert solved.dtype == np.float32
    exact = np.linalg.solve(rows.T.astype(np.float64) @ rows + 10 * np.eye(700), right)
    np.testing.assert_allclose(solved, exact, atol=2e-5 * np.abs(exact).max())


def test_an_indefinite_matrix_is_refused():
    matrix = SymmetricPanels(50, np.float64, 16)
    with pytest.raises(np.linalg.LinAlgError):
        matrix.cholesky(-1.0)


@pytest.mark.parametrize("width", [3, 16, 64, None])
def test_products_of_sparse_groups_are_the_dense_products(width):
    """Groups of two slices each, as the location and scale blocks of a component; one group is all zero."""
    rng = np.random.default_rng(0)
    active = rng.random((40, 5)) < 0.4
    active[:, 3] = False
    rows = (rng.standard_normal((40, 2, 5, 7)) * active[:, None, :, None]).reshape(40, 70)
    groups = [[slice(7 * k, 7 * k + 7), slice(35 + 7 * k, 42 + 7 * k)] for k in range(5)]
    found, expected = SymmetricPanels(70, np.float64, width), SymmetricPanels(70, np.float64, width)
    found.add_sparse_product(rows, groups)
    expected.add_product(rows, rows)
    np.testing.assert_allclose(found.dense(), rows.T @ rows, atol=1e-12)
    for one, other in zip(found.panels, expected.panels, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
