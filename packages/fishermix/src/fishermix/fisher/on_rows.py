"""`OnRows` applies a transformer of rows, such as PCA, to the rows of sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn import get_config
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import _num_samples, check_is_fitted

from fishermix.errors import FishermixError
from fishermix.fisher.sets import Sets, open_sets, weigh_rows


class OnRows(TransformerMixin, BaseEstimator):
    """Apply a scikit-learn transformer to the rows of sets, before `FisherEncoder` in a `Pipeline`.

    `fit` fits a clone of the transformer to the rows of all sets; `transform` returns the sets in the form in
    which they came, with transformed rows.

    Parameters
    ----------
    transformer : transformer
        Any scikit-learn transformer that keeps the number of rows, such as ``PCA(64)`` or a pipeline of
        several. Set its parameters as ``transformer__n_components``. To use a fitted one as it is, wrap it in
        `sklearn.frozen.FrozenEstimator`.

    Attributes
    ----------
    transformer_ : transformer
        The fitted clone.
    n_features_in_ : int
        Number of features D of the rows.

    See Also
    --------
    fishermix.FisherEncoder : the usual next step of a pipeline.
    sklearn.decomposition.PCA : the usual transformer.
    sklearn.frozen.FrozenEstimator : keeps a fitted transformer as it is.

    Examples
    --------
    >>> from sklearn.decomposition import PCA
    >>> from sklearn.pipeline import make_pipeline
    >>> from fishermix import FisherEncoder, GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> images = [rng.normal(size=(n, 8)) for n in (30, 50, 40)]
    >>> pipeline = make_pipeline(OnRows(PCA(3)), FisherEncoder(GaussianMixture(2, random_state=0)))
    >>> pipeline.fit_transform(images).shape
    (3, 12)
    """

    def __init__(self, transformer: Any):
        self.transformer = transformer

    def fit(self, X: Any, y: object = None, **params: Any) -> OnRows:
        """Fit the transformer to the rows of all sets.

        Parameters
        ----------
        X : sets of rows (n_i, D)
            As in `FisherEncoder.transform`, with offsets as a pair ``(rows, offsets)``.
        y : array-like of shape (n_sets,), optional
            Labels of the sets. A supervised transformer gets the label of its set for each row.
        **params : dict
            Metadata of the sets for the `fit` of the transformer, such as `sample_weight` (n_sets,): it gets
            for each row that of its set. With metadata routing enabled they go where they are requested.

        Returns
        -------
        self : OnRows
            The estimator, with the fitted transformer as `transformer_`.
        """
        self._fit(X, y, "fit", params)
        return self

    def fit_transform(self, X: Any, y: object = None, **params: Any) -> Any:
        """Fit the transformer and return the transformed sets. The arguments are those of `fit`.

        Returns
        -------
        sets : list, array or pair
            As of `transform`.
        """
        rows, form, out = self._fit(X, y, "fit_transform", params)
        return form.restore(self._check_rows(out, _num_samples(rows)))

    def transform(self, X: Any) -> Any:
        """Return the sets with transformed rows.

        X is as in `fit`. The result is a list for a list, an iterator or an object array; else a 3-D array,
        a pair or a 2-D array, as X. An empty set stays empty.

        Returns
        -------
        sets : list, array or pair
            The sets, each with as many rows as before.
        """
        check_is_fitted(self, "transformer_")
        rows, form = open_sets(X, self.n_features_in_)
        if form.kind == "rows" or len(rows):
            with form.name_not_finite(rows):
                transformed = self.transformer_.transform(rows)
            out = self._check_rows(transformed, _num_samples(rows))
        else:  # scikit-learn's transformers refuse an array without rows
            out = self._check_rows(self.transformer_.transform(np.zeros((1, self.n_features_in_))), 1)[:0]
        return form.restore(out)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of the transformed rows."""
        check_is_fitted(self, "transformer_")
        return self.transformer_.get_feature_names_out(input_features)

    def set_output(self, *, transform: Any = None) -> OnRows:
        """Do nothing: sets stay sets, and later steps of a pipeline may return data frames."""
        return self

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the router that scikit-learn asks where metadata go: all of them to the transformer."""
        mapping = MethodMapping()
        for method in ("fit", "fit_transform"):
            mapping.add(caller=method, callee=method)
        return MetadataRouter(owner=self).add(transformer=self.transformer, method_mapping=mapping)

    def _fit(self, X: Any, y: Any, method: str, params: dict[str, Any]) -> tuple[Any, Sets, Any]:
        rows, form = open_sets(X)
        if get_config()["enable_metadata_routing"]:
            params = process_routing(self, method, **params)["transformer"][method]
        of_rows = {name: form.repeat(value) for name, value in params.items()}
        if params.get("sample_weight") is not None:
            of_rows["sample_weight"] = weigh_rows(params["sample_weight"], form)
        self.transformer_ = clone(self.transformer)
        with form.name_not_finite(rows):
            out = getattr(self.transformer_, method)(rows, form.repeat(y), **of_rows)
        self.__dict__.pop("feature_names_in_", None)
        if hasattr(self.transformer_, "feature_names_in_"):
            self.feature_names_in_ = self.transformer_.feature_names_in_
        n_features = getattr(self.transformer_, "n_features_in_", None)
        self.n_features_in_ = int(np.shape(rows)[1]) if n_features is None else n_features
        return rows, form, out

    def _check_rows(self, out: Any, n_rows: int) -> np.ndarray:
        out = out.toarray() if issparse(out) else np.asarray(out)
        if len(out) != n_rows:
            raise FishermixError(
                f"{type(self.transformer).__name__} made {len(out)} rows of {n_rows}. OnRows needs a "
                "transformer that keeps the number of rows.",
                code="wrong_shape",
            )
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.transformer)
        tags.input_tags.three_d_array = True
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.target_tags.required = inner.target_tags.required
        tags.transformer_tags = inner.transformer_tags or tags.transformer_tags
        return tags
