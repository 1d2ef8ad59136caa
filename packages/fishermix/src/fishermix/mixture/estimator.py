"""`Mixture`, the scikit-learn estimator of mixtures."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from fishermix.callbacks import CallbackSupportMixin, FitCallbacks, with_callbacks
from fishermix.errors import FishermixError, warn_user
from fishermix.mixture.checkpoint import Checkpoint
from fishermix.mixture.em import FitProgress, FitState, run_starts
from fishermix.mixture.families import Family, parse_families
from fishermix.mixture.initialization import initialize
from fishermix.mixture.loops import Loops, choose_loops
from fishermix.mixture.parameters import LARGEST, MixtureParameters, check_parameters, check_shapes
from fishermix.mixture.partial_fit import fit_batch
from fishermix.mixture.posteriors import cut_tiles
from fishermix.mixture.saved import KIND, pack_mixture, unpack_mixture
from fishermix.mixture.sums import Sums
from fishermix.progress import progress as show
from fishermix.rows import ArraySource, Block, RowSource, open_rows
from fishermix.saved import hold_folder, load_folder, save_folder

OfTile = Callable[[np.ndarray, np.ndarray], Any]  # of posteriors (K, n) and log likelihoods (n,)


class Mixture(CallbackSupportMixin, DensityMixin, BaseEstimator):
    """Diagonal mixture in which each (component, dimension) has the family that fits it best.

    p(x) = sum_k tau_k prod_d f_kd((x_d - location_kd) / scale_kd) / scale_kd, with f_kd one of the `families`
    offered: EM fits them all and chooses, per (k, d), the one with the highest expected log likelihood
    (paper, section 3.3, where the families are the Gaussian and the Laplacian).

    Parameters
    ----------
    n_components : int, default 1
        Number of components K.
    families : list of str or Family, default ("gaussian", "laplace")
        The families offered: names ("gaussian", "laplace", "logistic", "student-t", or a registered one) or
        `fishermix.mixture.Family` objects. The first wins ties.
    tol : float, default 1e-3
        EM stops when the mean log likelihood per row gains less than this.
    max_iter : int, default 100
        Maximum number of iterations of EM.
    n_init : int, default 1
        Number of starts, of which the best is kept.
    init_params : {"k-means++", "kmeans", "random"}, default "k-means++"
        The start: rows chosen by scikit-learn's k-means++, clusters of its k-means, or random rows.
    weights_init : array-like of shape (K,), optional
        Initial weights of the components.
    locations_init : array-like of shape (K, D), optional
        Initial locations.
    scales_init : array-like of shape (K, D), optional
        Initial scales.
    min_scale : float, default 1e-3
        Lower limit of the scales, in the units of X; at least 1e-150.
    random_state : int, RandomState or None, default None
        Seeds the initialization. Results do not depend on n_jobs.
    warm_start : bool, default False
        Continue from the last fit.
    checkpoint : path, optional
        Folder in which to save the state every few iterations. A fit with the same data (all rows and weights
        are compared) and parameters resumes from it and gives the same bits as an uninterrupted one. A
        completed fit is not repeated.
    n_jobs : int, optional
        Number of threads, as in scikit-learn: None is one, unless a `joblib.parallel_config` says otherwise;
        -1 is every core that the process may use, -2 all but one, and so on.
    working_memory : float, default 256
        Memory in MiB, besides X and the parameters, for posteriors that a pass over the rows keeps for the
        next one and for the values among which medians are selected. With less, a fit takes more passes.
        Results do not depend on it.
    verbose : bool, default False
        Show a progress bar. If standard error is not a terminal, print a line after the first and the last
        iteration, and every ten seconds in between.

    Attributes
    ----------
    weights_ : ndarray of shape (K,)
        Weights of the components.
    locations_ : ndarray of shape (K, D)
        Locations of the chosen families: the mean of a Gaussian, the median of a Laplacian.
    scales_ : ndarray of shape (K, D)
        Scales of the chosen families: the standard deviation of a Gaussian, the mean absolute deviation from
        the median of a Laplacian.
    choice_ : ndarray of shape (K, D)
        Index into `families_` of the family of each component and dimension.
    shapes_ : ndarray of shape (K, D)
        The shape of each component and dimension, such as the degrees of freedom of ``StudentT(df=None)``;
        NaN where the chosen family has no free shape.
    families_ : list of Family
        The families offered.
    lower_bounds_ : list of float
        Mean log likelihood per row in each iteration.
    lower_bound_ : float
        The last of them.
    n_iter_ : int
        Number of iterations.
    converged_ : bool
        Whether the best start converged.
    n_features_in_ : int
        Number of features D.
    feature_names_in_ : ndarray of shape (D,)
        Names of the columns, if X was a data frame.

    See Also
    --------
    fishermix.GaussianMixture : with Gaussians only.
    fishermix.LaplacianMixture : with Laplacians only.
    fishermix.HybridMixture : with both, as in the paper.
    fishermix.FisherEncoder : Fisher vectors under a mixture.
    sklearn.mixture.GaussianMixture : also with full covariances.

    References
    ----------
    Klein, Lev, Sadeh, Wolf (CVPR 2015), Associating Neural Word Embeddings with Deep Image Representations
    using Fisher Vectors; arXiv:1411.7399.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(size=2000), rng.laplace(size=2000)])
    >>> mixture = Mixture(n_components=1, families=["gaussian", "laplace"], random_state=0).fit(X)
    >>> mixture.choice_.tolist()
    [[0, 1]]
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 (the name and form are scikit-learn's)
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "families": ["array-like", list, tuple],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "init_params": [StrOptions({"k-means++", "kmeans", "random"})],
        "weights_init": ["array-like", None],
        "locations_init": ["array-like", None],
        "scales_init": ["array-like", None],
        "min_scale": [Interval(Real, 1 / LARGEST, None, closed="left")],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "checkpoint": [str, os.PathLike, None],
        "n_jobs": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Integral, None, -1, closed="right"),
            None,
        ],
        "working_memory": [Interval(Real, 0, None, closed="neither")],
        "verbose": ["verbose"],
    }

    weights_: np.ndarray
    locations_: np.ndarray
    scales_: np.ndarray
    choice_: np.ndarray
    shapes_: np.ndarray
    families_: Sequence[Family]
    lower_bounds_: list[float]
    n_iter_: int
    converged_: bool
    n_features_in_: int
    feature_names_in_: np.ndarray
    _fixed_families: ClassVar[bool] = False

    def __init__(
        self,
        n_components: int = 1,
        *,
        families: Sequence[str | Family] = ("gaussian", "laplace"),
        tol: float = 1e-3,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str = "k-means++",
        weights_init: ArrayLike | None = None,
        locations_init: ArrayLike | None = None,
        scales_init: ArrayLike | None = None,
        min_scale: float = 1e-3,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        n_jobs: int | None = None,
        working_memory: float = 256,
        verbose: bool | int = False,
    ):
        self.n_components = n_components
        self.families = families
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.locations_init = locations_init
        self.scales_init = scales_init
        self.min_scale = min_scale
        self.random_state = random_state
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.working_memory = working_memory
        self.verbose = verbose

    # Fitting

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the mixture to X (N, D) by EM; sample_weight (N,) counts rows.

        X may also be rows that are not in memory, which are read block by block with the same result: the
        path of an .npy file, a list of such paths, a memory-mapped array, a re-iterable of blocks, a
        `dask.array` on the current client, or any `fishermix.rows.RowSource`.

        On Ctrl-C the estimator keeps the last completed iteration, and KeyboardInterrupt is re-raised.
        With scikit-learn 1.9, `set_callbacks` takes callbacks that see every start and iteration and may end
        them.

        Parameters
        ----------
        X : array of shape (N, D), path, iterable of blocks, or dask.array
            The rows.
        y : ignored
            Present for the interface of scikit-learn.
        sample_weight : array of shape (N,), optional
            The weight of each row. Weight 2 counts as the same row twice.

        Returns
        -------
        self : Mixture
        """
        self._validate_params()
        if self.checkpoint is None:
            return self._fit(X, sample_weight)
        with hold_folder(self.checkpoint, "checkpoint="):
            return self._fit(X, sample_weight)

    def _fit(self, X: Any, sample_weight: ArrayLike | None) -> Self:
        warm = self.warm_start and hasattr(self, "weights_")
        source = self._open_source(X, sample_weight, reset=not warm)
        families = parse_families(self.families)
        if warm:
            self._check_continues(source, families)
            if self.checkpoint is not None:
                raise FishermixError(
                    "warm_start=True continues the last fit, but checkpoint= resumes it. Set "
                    "checkpoint=None for more iterations, or warm_start=False to resume.",
                    code="wrong_parameter",
                )
        starts = self._prepare_starts(source, families)
        if warm:
            del starts[1:]  # the first stands for the state of the last fit, and is not called
        checkpoint = None
        progress = None
        if self.checkpoint is not None:
            checkpoint = Checkpoint(self.checkpoint, self._describe_fit(), source)
            if progress := checkpoint.read():
                progress.reopen(self.max_iter)
        progress = progress or FitProgress(self._continue_state() if warm else starts[0]())
        first = progress.state.iteration if warm else 0
        max_iter = self.max_iter + first
        callbacks = FitCallbacks(self, X, sample_weight, len(starts), self.max_iter)

        def describe() -> dict[str, Any]:
            state = progress.state
            return self._describe_state(state, progress.converged, state.weights * source.total_weight, first)

        def end_start() -> bool:
            return callbacks.end_start(describe)

        iterations_per_checkpoint = 5
        description = f"fitting {type(self).__name__}"
        with show(description, len(starts) * self.max_iter, shown=True if self.verbose else None) as bar:
            try:
                for state in run_starts(
                    progress,
                    source,
                    starts,
                    max_iter,
                    self.tol,
                    self.working_memory,
                    before_iteration=callbacks.begin_iteration,
                    after_start=end_start,
                ):
                    bar.advance(1, note=f"log likelihood {state.lower_bounds[-1]:.4f}")
                    progress.stopped = callbacks.end_iteration(describe)
                    if checkpoint and state.iteration % iterations_per_checkpoint == 0:
                        checkpoint.write(progress)
            finally:
                progress.keep_better()
                best = progress.best or progress.state
                self._set_state(best, progress.best_converged, best.weights * source.total_weight, first)
        if checkpoint:
            checkpoint.write(progress)
        callbacks.end()
        self._warn(best, callbacks.stopped)
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> np.ndarray:
        """Fit the mixture and return the component of each row, as fit(X).predict(X) does.

        Returns
        -------
        components : ndarray of shape (N,)
        """
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the mixture to one more batch X (n, D) of a stream. The first batch needs at least K rows.

        Each batch is one step of incremental EM: an iteration on its rows, averaged with the mixture before
        it by the weights of the rows seen. Means and variances are pooled exactly, medians and other families
        are not. The first batch is fitted with `fit` and sets the start, so it should resemble the stream.

        Returns
        -------
        self : Mixture
        """
        self._validate_params()
        if not hasattr(self, "weights_"):
            return self.fit(X, sample_weight=sample_weight)
        source = self._open_source(X, sample_weight, reset=False, fewest=1)
        self._check_continues(source, parse_families(self.families))
        old = self._continue_state()
        state, seen = fit_batch(old, source, getattr(self, "_seen", old.rows), self.working_memory)
        self._set_state(state, False, seen)
        return self

    def _open_source(
        self, X: Any, sample_weight: Any = None, *, reset: bool, fewest: int | None = None
    ) -> RowSource:
        """Open and check rows: all that `fit` takes."""
        threads = effective_n_jobs(None) if self.n_jobs is None else self.n_jobs
        source = open_rows(X, sample_weight, threads)
        if source is None:
            X = validate_data(
                self,
                X,
                reset=reset,
                dtype=[np.float64, np.float32],
                order="C",
                ensure_min_samples=fewest or 2,
            )
            source = ArraySource(X, sample_weight, threads)
        elif reset:
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit to a data frame
            self.n_features_in_ = source.shape[1]
        elif source.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {source.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        lightest, heaviest = 1e-100, 1e100  # sums of weights that float64 can square
        if not lightest <= source.total_weight <= heaviest:
            raise ValueError(
                f"Sample weights must sum to a number between {lightest:g} and {heaviest:g}, but they sum to "
                f"{source.total_weight:g}. Multiply all of them by the same factor."
            )
        if source.shape[0] < (fewest or self.n_components):
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = {self.n_components}, "
                f"n_samples = {source.shape[0]}. Every component needs a row: set n_components to at most "
                f"{source.shape[0]}."
            )
        return source

    def _check_continues(self, source: RowSource, families: list[Family]) -> None:
        if self.locations_.shape != (self.n_components, source.shape[1]):
            raise ValueError(
                f"The mixture has {self.locations_.shape[0]} components, but n_components = "
                f"{self.n_components}. Call fit with warm_start=False to start again."
            )
        # Not ==: a custom family may have no equality of its own.
        if [repr(family) for family in families] != [repr(family) for family in self.families_]:
            raise FishermixError(
                f"The mixture was fitted with the families {list(self.families_)}, but families = "
                f"{families}. Call fit with warm_start=False to start again.",
                code="wrong_parameter",
            )

    def _prepare_starts(self, source: RowSource, families: list[Family]) -> list[Callable[[], FitState]]:
        """Return the functions that initialize the `n_init` starts."""
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=self.n_init)

        def new_start(seed: int) -> FitState:
            start = initialize(self, source, np.random.RandomState(seed))
            return FitState.start(families, start, self.min_scale, source.shape[0], seed)

        return [partial(new_start, int(seed)) for seed in seeds]

    def _recover_state(self) -> FitState:
        """Return the state of the last fit, or one made of the public attributes if these were changed."""
        if last := getattr(self, "_last", None):
            fitted, current = last.parameters, self._parameters
            same = all(
                np.array_equal(getattr(current, name), getattr(fitted, name))
                for name in ("weights", "locations", "scales", "choice")
            )
            if same and np.array_equal(_fill_shapes(current), _fill_shapes(fitted), equal_nan=True):
                return last
        start = self.weights_, self.locations_, self.scales_
        state = FitState.start(
            list(self.families_), start, self.min_scale, 1.0, 0, _fill_shapes(self._parameters)
        )
        return replace(state, choice=self.choice_)

    def _continue_state(self) -> FitState:
        """Return the state of the last fit, with the current `min_scale`."""
        state, floor = self._recover_state(), float(self.min_scale)
        fits = [
            fit if fit.floor == floor else replace(fit, floor=floor, scale=np.maximum(fit.scale, floor))
            for fit in state.fits
        ]
        return replace(state, fits=tuple(fits))

    def _set_state(self, state: FitState, converged: bool, seen: np.ndarray, first: int = 0) -> None:
        """Set the fitted attributes; `n_iter_` and `lower_bounds_` start with the iteration `first`."""
        self.__dict__.update(self._describe_state(state, converged, seen, first))

    def _describe_state(
        self, state: FitState, converged: bool, seen: np.ndarray, first: int
    ) -> dict[str, Any]:
        """The attributes of a mixture that was fitted until this state."""
        parameters = state.parameters
        attributes = {
            "_last": state,
            "_seen": seen,  # (K,) weight of the rows so far, by which `partial_fit` averages
            "families_": parameters.families,
            "weights_": parameters.weights,
            "locations_": parameters.locations,
            "scales_": parameters.scales,
            "choice_": parameters.choice,
            "_first_iteration": first,
            "n_iter_": state.iteration - first,
            "lower_bounds_": list(state.lower_bounds[first:]),
            "converged_": converged,
        }
        return attributes if self._fixed_families else attributes | {"shapes_": _fill_shapes(parameters)}

    def _warn(self, state: FitState, stopped: bool) -> None:
        problems = []
        if reseeded := int((state.reseeds > 0).sum()):
            problems.append(f"{reseeded} components lost all their rows and were re-seeded")
        if floored := int((self.scales_ <= self.min_scale).sum()):
            problems.append(
                f"{floored} of {self.scales_.size} scales are at min_scale={self.min_scale:g} (constant "
                "columns, duplicated rows or too many components; if X has small units, lower min_scale)"
            )
        if state.lower_bounds and state.lower_bounds[-1] < -LARGEST:
            problems.append("rows are outside of the support of all families: their log likelihood is -inf")
        if problems:
            warn_user(f"{'; '.join(problems)}. The fit continued.")
        if rising := state.count_rising(max(self.tol, 1e-6)):
            warn_user(
                f"{rising} of {self.scales_.size} cells ended where their likelihood still rises: no step of "
                "Newton's method raised it. Check the custom families with check_family, or start elsewhere.",
                ConvergenceWarning,
            )
        if not self.converged_ and self.tol > 0 and not stopped:
            warn_user(
                f"EM did not converge in {self.n_iter_} iterations. Increase max_iter or tol.",
                ConvergenceWarning,
            )

    def _describe_fit(self) -> dict[str, Any]:
        """Return the parameters that the result of a fit depends on."""
        parameters = self.get_params()
        if self.n_init == 1:
            del parameters["max_iter"]  # a single start can be continued, several cannot
        families = [(type(f).__qualname__, f.parameters()) for f in parse_families(self.families)]
        without_effect = {"n_jobs", "verbose", "warm_start", "checkpoint", "working_memory"}
        left_out = {*without_effect, "families"}
        kept = {name: value for name, value in parameters.items() if name not in left_out}
        arrays = {name: np.asarray(value).tolist() for name, value in kept.items() if name.endswith("_init")}
        return {**kept, **arrays, "class": type(self).__name__, "families": families}

    @classmethod
    def from_parameters(
        cls,
        weights: ArrayLike,
        locations: ArrayLike,
        scales: ArrayLike,
        choice: ArrayLike | None = None,
        families: Sequence[str | Family] | None = None,
        shapes: ArrayLike | None = None,
    ) -> Self:
        """Return a fitted mixture with these parameters, without data.

        Parameters
        ----------
        weights : array-like of shape (K,)
            Weights of the components, positive, of sum 1.
        locations, scales : array-like of shape (K, D)
            Locations, and scales above 0: mean and standard deviation of a Gaussian, median and mean absolute
            deviation of a Laplacian.
        choice : array-like of shape (K, D), optional
            Index into `families` of the family of each component and dimension; default: the first.
        families : list of names or Family objects, optional
            The families, for `Mixture` only; default: Gaussian and Laplacian.
        shapes : array-like of shape (K, D), optional
            The shapes where a family with a free one is chosen, such as the degrees of freedom of
            ``StudentT(df=None)``.

        Returns
        -------
        mixture : as the class
            It predicts, samples, is saved, and continues with `fit` under ``warm_start=True``. Its
            `min_scale` is not above the scales given; `lower_bounds_` is empty.

        Examples
        --------
        >>> mixture = GaussianMixture.from_parameters([0.5, 0.5], [[0.0], [4.0]], [[1.0], [1.0]])
        >>> mixture.predict([[0.3], [3.9]]).tolist()
        [0, 1]
        """
        weights, locations, scales = (np.array(part, np.float64) for part in (weights, locations, scales))
        chosen = np.zeros(locations.shape, np.int64) if choice is None else np.array(choice)
        if families is not None and cls._fixed_families:
            raise FishermixError(
                f"The families of {cls.__name__} are fixed. Use Mixture.from_parameters.",
                code="wrong_parameter",
            )
        mixture = cls(weights.size) if families is None else cls(weights.size, families=families)
        offered = parse_families(mixture.families)
        given = None if shapes is None else np.array(shapes, np.float64)
        parameters = MixtureParameters(offered, weights, locations, scales, chosen, given)
        check_parameters(parameters)
        check_shapes(parameters)
        mixture.min_scale = float(min(mixture.min_scale, scales.min()))
        start = weights, locations, scales
        state = FitState.start(offered, start, mixture.min_scale, 1.0, seed=0, shapes=given)
        mixture._set_state(replace(state, choice=chosen.astype(np.int64)), False, state.rows)
        mixture.n_features_in_ = locations.shape[1]
        return mixture

    # Prediction and sampling

    @property
    def lower_bound_(self) -> float:
        """Mean log likelihood per row in the last iteration."""
        check_is_fitted(self, "weights_")
        if not self.lower_bounds_:
            raise AttributeError(
                "lower_bound_ is known after fit; this mixture was made of given parameters."
            )
        return float(self.lower_bounds_[-1])

    @property
    def _parameters(self) -> MixtureParameters:
        """The fitted attributes as one plain object, which does the computing."""
        check_is_fitted(self, "weights_")
        arrays = self.weights_, self.locations_, self.scales_, self.choice_
        return MixtureParameters(self.families_, *arrays, getattr(self, "shapes_", None))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the posteriors (N, K). X may be all that `fit` takes, here and below.

        Returns
        -------
        posteriors : ndarray of shape (N, K)
            Each row sums to 1.
        """
        return np.concatenate(self._map_tiles(X, lambda posterior, _: np.ascontiguousarray(posterior.T)))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most likely component of each row (N,).

        Returns
        -------
        components : ndarray of shape (N,)
            Indices from 0 to K - 1.
        """
        return self.predict_proba(X).argmax(axis=1)

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log likelihood of each row (N,); -inf where every component has density 0.

        Returns
        -------
        log_likelihoods : ndarray of shape (N,)
        """
        return np.concatenate(self._map_tiles(X, lambda _, log_likelihood: log_likelihood))

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the mean log likelihood per row; sample_weight (N,) counts rows.

        Returns
        -------
        score : float
        """
        log_likelihood = self.score_samples(X)
        if sample_weight is None:
            return float(log_likelihood.mean())
        weight = np.asarray(sample_weight, np.float64)
        if weight.shape != log_likelihood.shape:
            raise ValueError(f"sample_weight.shape == {weight.shape}, expected {log_likelihood.shape}!")
        counted = weight != 0  # a row that does not count may have density 0
        return float(np.average(log_likelihood[counted], weights=weight[counted]))

    def bic(self, X: Any) -> float:
        """Bayesian information criterion on X; lower is better. Free shapes are counted, the choices are not.

        Returns
        -------
        bic : float
        """
        log_likelihood = self.score_samples(X)
        return float(-2 * log_likelihood.sum() + self._parameters.n_free * np.log(len(log_likelihood)))

    def aic(self, X: Any) -> float:
        """Akaike information criterion on X; lower is better. Free shapes are counted, the choices are not.

        Returns
        -------
        aic : float
        """
        return float(-2 * self.score_samples(X).sum() + 2 * self._parameters.n_free)

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows (n, D), component after component; returns them and their components (n,).

        Returns
        -------
        rows, components : ndarrays of shape (n, D) and (n,)
        """
        parameters = self._parameters
        if n_samples < 1:
            raise ValueError(
                f"Invalid value for 'n_samples': {n_samples}. The sampling requires at least one."
            )
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return parameters.sample(n_samples, np.random.default_rng(seed))

    def _map_tiles(self, X: Any, of_tile: OfTile) -> list[Any]:
        """Return `of_tile` of each tile of X, which may be all that `fit` takes."""
        parameters = self._parameters
        source = self._open_source(X, reset=False, fewest=1)
        loops = choose_loops(source.shape[0] * parameters.choice.size)
        return source.total(partial(_map_block, parameters, loops, of_tile)).results

    # Saving

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save `config.json` and one safetensors file. Custom families must be registered."""
        check_is_fitted(self, "weights_")
        config, tensors = pack_mixture(self)
        save_folder(folder, KIND, config, tensors)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Load the mixture saved in `folder`. It is checked, and nothing in it can run code.

        Returns
        -------
        mixture : Mixture
        """
        saved = load_folder(folder, KIND)
        mixture = unpack_mixture(saved.config, saved.tensors, folder)
        if not isinstance(mixture, cls):
            raise FishermixError(
                f"{folder} holds a {type(mixture).__name__}, not a {cls.__name__}.", code="wrong_folder"
            )
        return mixture


def _fill_shapes(parameters: MixtureParameters) -> np.ndarray:
    """The shapes (K, D), also of families without any."""
    shapes = parameters.shapes
    return np.full(parameters.choice.shape, np.nan) if shapes is None else shapes


@dataclass
class TileResults(Sums):
    """What is computed of each tile, in their order."""

    results: list[Any]


def _map_block(parameters: MixtureParameters, loops: Loops, of_tile: OfTile, block: Block) -> TileResults:
    """Return `of_tile` of each tile of a block."""
    return TileResults([of_tile(*parameters.posteriors(tile, loops)) for tile in cut_tiles(block.rows)])
