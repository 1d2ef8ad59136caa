"""`SpatialPyramid` encodes the parts of an image side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted

from fishermix.errors import FishermixError
from fishermix.fisher.sets import Sets, parse_rows


class SpatialPyramid(TransformerMixin, BaseEstimator):
    """Put the vectors of the cells of an image side by side, so that positions count.

    The last two columns of the rows are positions x and y in the image, from 0 to 1. They choose the cell of
    a row. The encoder sees the other columns.

    Parameters
    ----------
    encoder : transformer of sets
        Such as ``FisherEncoder(GaussianMixture(64))``, or a pipeline of `OnRows` and an encoder. `fit` fits a
        clone of it to the whole sets; `sklearn.frozen.FrozenEstimator` keeps a fitted one.
    grids : sequence of (columns, rows), default ((1, 1), (2, 2))
        The image is cut into the cells of each grid. ((1, 1), (1, 3)) is the whole image and three stripes.

    Attributes
    ----------
    encoder_ : transformer of sets
        The fitted clone.
    n_features_in_ : int
        Number of columns of the rows, with the positions.

    See Also
    --------
    fishermix.FisherEncoder : the usual encoder.

    References
    ----------
    Lazebnik, Schmid, Ponce (CVPR 2006), Beyond bags of features: spatial pyramid matching for recognizing
    natural scene categories.

    Examples
    --------
    >>> from fishermix import FisherEncoder, GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> images = [np.hstack([rng.normal(size=(n, 3)), rng.uniform(size=(n, 2))]) for n in (50, 80)]
    >>> SpatialPyramid(FisherEncoder(GaussianMixture(2, random_state=0))).fit_transform(images).shape
    (2, 60)
    """

    encoder_: Any
    n_features_in_: int

    def __init__(self, encoder: Any, grids: Sequence[tuple[int, int]] = ((1, 1), (2, 2))):
        self.encoder = encoder
        self.grids = grids

    def fit(self, X: Any, y: Any = None, **params: Any) -> SpatialPyramid:
        """Fit the encoder to the sets without their positions.

        Parameters
        ----------
        X : sets of rows (n_i, D + 2)
            As in `FisherEncoder.transform`, with offsets as a pair ``(rows, offsets)``.
        y : array-like of shape (n_sets,), optional
            Labels of the sets, for a supervised encoder.
        **params : dict
            Metadata, such as `sample_weight` (n_sets,), for the `fit` of the encoder. With metadata routing
            enabled they go where they are requested.

        Returns
        -------
        self : SpatialPyramid
            The estimator, with the fitted encoder as `encoder_`.
        """
        self._fit(X, y, "fit", params)
        return self

    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> np.ndarray:
        """Fit the encoder and return the vectors. The sets are read once: X may be an iterator.

        Returns
        -------
        vectors : ndarray of shape (n_sets, n_cells * n_features)
            As of `transform`.
        """
        return self._encode(*self._fit(X, y, "fit_transform", params))

    def transform(self, X: Any) -> np.ndarray:
        """Return the vectors of all cells side by side, grid after grid, and row after row of a grid.

        Returns
        -------
        vectors : ndarray of shape (n_sets, n_cells * n_features)
            A cell without rows has the zero vector.
        """
        check_is_fitted(self)
        return self._encode(*parse_rows(self, X, None))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the encoder for every cell c: `cell_c_name`. `input_features` is ignored."""
        check_is_fitted(self)
        n_cells = sum(columns * rows for columns, rows in self.grids)
        names = self.encoder_.get_feature_names_out()
        return np.array([f"cell_{cell}_{name}" for cell in range(n_cells) for name in names], dtype=object)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the router that scikit-learn asks where metadata go: all of them to the encoder."""
        mapping = MethodMapping().add(caller="fit", callee="fit").add(caller="fit_transform", callee="fit")
        return MetadataRouter(owner=self).add(encoder=self.encoder, method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # scikit-learn's checks know nothing of positions from 0 to 1
        tags.target_tags.required = get_tags(self.encoder).target_tags.required
        return tags

    def _fit(self, X: Any, y: Any, method: str, params: dict[str, Any]) -> tuple[np.ndarray, Sets]:
        self._check_grids()
        rows, sets = parse_rows(self, X, None, fitted=False)
        if rows.shape[1] < 3:
            raise FishermixError(
                f"The rows have {rows.shape[1]} columns. The last two must be positions.", code="wrong_shape"
            )
        _check_positions(rows, sets)
        if get_config()["enable_metadata_routing"]:
            params = process_routing(self, method, **params)["encoder"]["fit"]
        self.encoder_ = clone(self.encoder).fit((rows[:, :-2], sets.offsets), y, **params)
        self.n_features_in_ = rows.shape[1]
        return rows, sets

    def _encode(self, rows: np.ndarray, sets: Sets) -> np.ndarray:
        self._check_grids()
        _check_positions(rows, sets)
        sets.warn_of_empty()
        set_of_row = np.repeat(np.arange(sets.n_sets), sets.sizes)
        return np.hstack([self._encode_grid(rows, set_of_row, sets.n_sets, grid) for grid in self.grids])

    def _check_grids(self) -> None:
        grids = np.asarray(self.grids)
        if grids.ndim != 2 or grids.shape[1] != 2 or grids.dtype.kind not in "iu" or (grids < 1).any():
            raise FishermixError(
                f"grids={self.grids!r} is not a list of (columns, rows), such as [(1, 1), (2, 2)].",
                code="wrong_parameter",
            )

    def _encode_grid(
        self, rows: np.ndarray, set_of_row: np.ndarray, n_sets: int, grid: tuple[int, int]
    ) -> np.ndarray:
        """The vectors (n_sets, n_cells * n_features) of the cells of a grid; cells without rows stay zero."""
        n_cells = grid[0] * grid[1]
        column, row = np.minimum((rows[:, -2:] * grid).astype(np.int64), np.array(grid) - 1).T
        cells = set_of_row * n_cells + row * grid[0] + column
        order = np.argsort(cells, kind="stable")
        filled, first = np.unique(cells[order], return_index=True)
        descriptors = np.ascontiguousarray(rows[order, :-2])
        vectors = np.asarray(self.encoder_.transform((descriptors, np.append(first, len(rows)))))
        out = np.zeros((n_sets * n_cells, vectors.shape[1]), vectors.dtype)
        out[filled] = vectors
        return out.reshape(n_sets, -1)


def _check_positions(rows: np.ndarray, sets: Sets) -> None:
    """Reject rows whose last two columns are not positions from 0 to 1."""
    outside = ~((rows[:, -2:] >= 0) & (rows[:, -2:] <= 1)).all(axis=1)
    if outside.any():
        number, row = sets.locate(int(outside.argmax()))
        raise FishermixError(
            f"The last two columns must be positions from 0 to 1, but those of row {row} of set {number} are "
            "not. Divide x by the width of the image and y by its height.",
            code="out_of_range",
            set=number,
            row=row,
        )
