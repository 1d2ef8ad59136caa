"""`Mixture(families=[...])` and its three names, as scikit-learn estimators."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fishermix.errors import FishermixError, FishermixWarning
from fishermix.mixture.callbacks import CallbackSupportMixin, IterationCallbacks, with_callbacks
from fishermix.mixture.checkpoint import pack, unpack
from fishermix.mixture.density import FittedDensity
from fishermix.mixture.em import LARGEST, State, start_state
from fishermix.mixture.families import Family, as_family
from fishermix.mixture.fitting import Checkpoint, Progress, run
from fishermix.mixture.initialization import starting_point
from fishermix.mixture.minibatch import step_on
from fishermix.rows.blocks import ArraySource, RowSource
from fishermix.rows.open import opened
from fishermix.storage import load_folder, require_tensor, save_folder
from fishermix.threads import count_threads

KIND, VERSION = "mixture", 1
LIGHTEST, HEAVIEST = 1e-100, 1e100  # sums of sample weights whose squares are at home in float64
# Parameters that do not change what a fit comes to.
_FREE_OF_RESULT = ("n_jobs", "verbose", "warm_start", "checkpoint")


class Mixture(CallbackSupportMixin, FittedDensity):
    """Diagonal mixture in which every (component, dimension) takes the family that fits it best.

    p(x) = sum_k tau_k prod_d f_kd((x_d - location_kd) / scale_kd) / scale_kd, with f_kd one of the `families`
    offered: EM fits them all and keeps, per (k, d), the one of the highest expected log likelihood (paper,
    section 3.3, where the families are the Gaussian and the Laplacian).

    Parameters
    ----------
    n_components : number of components K.
    families : names ("gaussian", "laplace", "logistic", "student-t") or `Family` objects; first wins ties.
    tol : EM stops when the mean log likelihood of a row gains less.
    max_iter, n_init : iterations at most; starts, of which the best is kept.
    init_params : "k-means++" (scikit-learn's) or "random" rows.
    weights_init, locations_init, scales_init : (K,), (K, D), (K, D), where given.
    min_scale : no scale falls below it, in the units of X; at least 1e-150.
    random_state : decides everything; the number of threads decides nothing.
    warm_start : go on from the last fit.
    checkpoint : folder to write the state to every few iterations; a fit with the same data (all rows and
        weights are compared) and parameters takes it up and ends with the same bits as one that was never
        interrupted. A fit that had ended is not done again.
    n_jobs : threads; None or -1 takes every core the process may use, -2 all but one, and so on.
    verbose : show a progress bar; where standard error is no terminal, a line at the first iteration, at the
        last, and every ten seconds between.

    Attributes
    ----------
    weights_ (K,), locations_, scales_ and choice_ (K, D), an index into families_, the list of those offered.
    lower_bounds_ : mean log likelihood of a row at each iteration; n_iter_, converged_.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(size=2000), rng.laplace(size=2000)])
    >>> mixture = Mixture(n_components=1, families=["gaussian", "laplace"], random_state=0).fit(X)
    >>> mixture.choice_.tolist()
    [[0, 1]]
    """

    _parameter_constraints: dict[str, list] = {  # noqa: RUF012 (the name and form are scikit-learn's)
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "families": ["array-like", list, tuple],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "init_params": [StrOptions({"k-means++", "random"})],
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
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components=30,
        *,
        families=("gaussian", "laplace"),
        tol=1e-3,
        max_iter=100,
        n_init=1,
        init_params="k-means++",
        weights_init=None,
        locations_init=None,
        scales_init=None,
        min_scale=1e-3,
        random_state=None,
        warm_start=False,
        checkpoint=None,
        n_jobs=None,
        verbose=False,
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
        self.verbose = verbose

    # Fitting

    @with_callbacks
    def fit(self, X, y=None, sample_weight=None):
        """EM on X (N, D); sample_weight (N,) counts rows.

        X may also be rows that are not in memory, read block by block with the same result: the path of an
        .npy, .safetensors or .parquet file, a list of such parts, a memory-mapped array, a re-iterable of
        blocks, a `dask.array` on the current client, or any `fishermix.rows.blocks.RowSource`.

        Ctrl-C leaves the state of the last whole iteration in the estimator before it goes on its way.
        """
        self._validate_params()
        going_on = self.warm_start and hasattr(self, "weights_")
        source = self._source(X, sample_weight, reset=not going_on)
        if going_on and self.locations_.shape != (self.n_components, source.shape[1]):
            raise ValueError(
                f"warm_start goes on from {self.locations_.shape[0]} components, but n_components = "
                f"{self.n_components}: set warm_start=False to start anew."
            )
        new_start = self._starts(source)
        checkpoint = None
        progress = None
        if self.checkpoint is not None:
            checkpoint = Checkpoint(self.checkpoint, self._parameters_of_result(), source)
            if progress := checkpoint.read():
                progress.reopen(self.max_iter)
        if progress is None:
            progress = Progress(self._state() if going_on else new_start(0))
        n_starts = 1 if going_on else self.n_init
        first = progress.state.iteration if going_on else 0
        with IterationCallbacks(self, X, sample_weight, n_starts * self.max_iter, _public) as callbacks:
            try:
                run(
                    progress,
                    source,
                    new_start=new_start,
                    n_starts=n_starts,
                    max_iter=first + self.max_iter,
                    tol=self.tol,
                    callbacks=callbacks,
                    checkpoint=checkpoint,
                )
            finally:
                progress.keep_better()
                best = progress.best or progress.state
                self._set(best, progress.best_converged, best.weights * source.total_weight)
        self._warn(best)
        return self

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit, and the component of each row: the same as fit(X).predict(X)."""
        return self.fit(X, y, sample_weight).predict(X)

    def partial_fit(self, X, y=None, sample_weight=None):
        """One step on a batch X (n, D); the first batch is fitted as a whole and needs at least K rows.

        Approximate: means and variances are pooled exactly over the batches, but rows keep the posteriors of
        the moment they were seen, and medians and the fits of other families are averaged over the batches.
        """
        self._validate_params()
        if not hasattr(self, "weights_"):
            return self.fit(X, sample_weight=sample_weight)
        source = self._source(X, sample_weight, reset=False, least=1)
        old = self._state()
        state, seen = step_on(old, source, getattr(self, "_seen", old.rows))
        self._set(state, False, seen)
        return self

    def _source(self, X, sample_weight, *, reset: bool, least: int | None = None) -> RowSource:
        if not isinstance(X, RowSource):
            source = opened(X, sample_weight, count_threads(self.n_jobs))
            if source is not None:
                X, sample_weight = source, None
        if isinstance(X, RowSource):
            if sample_weight is not None:
                raise ValueError("sample_weight belongs to the source of blocks: give it there.")
            if reset:
                self.n_features_in_ = X.shape[1]
            elif X.shape[1] != self.n_features_in_:
                raise ValueError(f"X has {X.shape[1]} features, but expected {self.n_features_in_} features.")
            source = X
        else:
            X = validate_data(
                self, X, reset=reset, dtype=[np.float64, np.float32], order="C", ensure_min_samples=least or 2
            )
            if sample_weight is not None:
                sample_weight = _check_sample_weight(
                    sample_weight, X, dtype=np.float64, ensure_non_negative=True
                )
                if not sample_weight.any():
                    raise ValueError("Sample weights must contain at least one non-zero number.")
            source = ArraySource(X, sample_weight, count_threads(self.n_jobs))
        if not LIGHTEST <= source.total_weight <= HEAVIEST:
            raise ValueError(
                f"Sample weights must sum to a number between {LIGHTEST:g} and {HEAVIEST:g}, but they sum to "
                f"{source.total_weight:g}: multiply all of them by one factor."
            )
        if source.shape[0] < (least or self.n_components):
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = {self.n_components}, "
                f"n_samples = {source.shape[0]}"
            )
        return source

    def _starts(self, source: RowSource) -> Callable[[int], State]:
        """The state that each of the `n_init` starts begins with."""
        families = self._offered()
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=self.n_init)

        def new_start(number: int) -> State:
            seed = int(seeds[number])
            point = starting_point(
                source,
                self.n_components,
                self.init_params,
                np.random.RandomState(seed),
                self.weights_init,
                self.locations_init,
                self.scales_init,
            )
            return start_state(families, *point, self.min_scale, source.shape[0], seed)

        return new_start

    def _offered(self) -> list[Family]:
        if isinstance(self.families, str) or not len(self.families):
            raise FishermixError("families must be a list such as ['gaussian', 'laplace']")
        families = [as_family(family) for family in self.families]
        for place, family in enumerate(families):
            if family in families[:place]:
                raise FishermixError(f"families names '{family.name}' twice: offer each family once")
        return families

    def _state(self) -> State:
        """The state of the last fit, or one made of the public attributes where somebody has set these."""
        if last := getattr(self, "_last", None):
            components = last.components
            names = ("weights", "locations", "scales", "choice")
            if all(np.array_equal(getattr(self, f"{name}_"), getattr(components, name)) for name in names):
                return last
        state = start_state(
            list(self.families_), self.weights_, self.locations_, self.scales_, self.min_scale, 1.0, seed=0
        )
        return State(state.weights, state.fits, self.choice_, state.rows, 0, reseeds=state.reseeds)

    def _set(self, state: State, converged: bool, seen: np.ndarray) -> None:
        self._last = state
        self._seen = seen  # (K,) weight of the rows so far, what `partial_fit` averages by
        for name, value in _public(state).items():
            setattr(self, name, value)
        self.converged_ = converged

    def _warn(self, state: State) -> None:
        happened = []
        if reseeded := int((state.reseeds > 0).sum()):
            happened.append(f"{reseeded} components lost all their rows and were re-seeded")
        if floored := int((self.scales_ <= self.min_scale).sum()):
            happened.append(
                f"{floored} of {self.scales_.size} scales stay at min_scale={self.min_scale:g} (constant "
                "columns, duplicated rows or too many components; if X has small units, lower min_scale)"
            )
        if happened:
            warnings.warn(f"{'; '.join(happened)}. The fit went on.", FishermixWarning, stacklevel=3)
        if not self.converged_ and self.tol > 0:
            warnings.warn(
                f"EM did not converge in {self.n_iter_} iterations: raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _parameters_of_result(self) -> dict[str, Any]:
        parameters = self.get_params()
        if self.n_init == 1:
            del parameters["max_iter"]  # a single start may go on from its end, several have left theirs
        families = [(type(f).__qualname__, f.parameters()) for f in self._offered()]
        kept = {
            name: value for name, value in parameters.items() if name not in (*_FREE_OF_RESULT, "families")
        }
        arrays = {name: np.asarray(value).tolist() for name, value in kept.items() if name.endswith("_init")}
        return {**kept, **arrays, "class": type(self).__name__, "families": families}

    # Saving

    def save(self, folder: str | os.PathLike) -> None:
        """Write `config.json` and one safetensors file; families of one's own must be registered."""
        save_folder(folder, KIND, VERSION, *self.to_tensors())

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Mixture:
        """The mixture saved in `folder`, checked; nothing in it can run."""
        return cls.from_tensors(*load_folder(folder, KIND, VERSION), folder)

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Plain JSON values and tensors, from which `from_tensors` makes the same mixture."""
        check_is_fitted(self)
        state = self._state()
        config, tensors = pack(state)
        tensors["seen"] = getattr(self, "_seen", state.rows)
        seed = self.random_state if isinstance(self.random_state, Integral) else None
        simple = ("tol", "max_iter", "n_init", "init_params", "min_scale")
        parameters = {name: getattr(self, name) for name in simple} | {"random_state": seed}
        config |= {"class": type(self).__name__, "parameters": parameters, "converged": bool(self.converged_)}
        return config, tensors

    @classmethod
    def from_tensors(
        cls, config: dict[str, Any], tensors: dict[str, np.ndarray], where: str | os.PathLike
    ) -> Mixture:
        """The opposite of `to_tensors`; `where` is named in what goes wrong."""
        classes: dict[Any, type[Mixture]] = {
            known.__name__: known for known in (Mixture, GaussianMixture, LaplacianMixture, HybridMixture)
        }
        known = classes.get(config.get("class"), Mixture)
        if not issubclass(known, cls):
            raise FishermixError(f"{where} holds a {known.__name__}, not a {cls.__name__}")
        state = unpack(config, tensors, where)
        parameters = dict(config.get("parameters", {}))
        if known is Mixture:
            parameters["families"] = state.families
        try:
            mixture = known(len(state.weights), **parameters)
        except TypeError as error:
            raise FishermixError(f"{where} names parameters that a mixture does not have: {error}") from error
        mixture.n_features_in_ = state.choice.shape[1]
        seen = (
            require_tensor(tensors, "seen", state.weights.shape, where) if "seen" in tensors else state.rows
        )
        mixture._set(state, bool(config.get("converged")), seen)
        return mixture


def _public(state: State) -> dict[str, Any]:
    """The fitted attributes of a state."""
    components = state.components
    return {
        "families_": state.families,
        "weights_": components.weights,
        "locations_": components.locations,
        "scales_": components.scales,
        "choice_": components.choice,
        "lower_bounds_": list(state.lower_bounds),
        "n_iter_": state.iteration,
    }


class _Named(Mixture):
    """A mixture whose families are in its name."""

    _families: Iterable[str]

    def __init__(
        self,
        n_components=30,
        *,
        tol=1e-3,
        max_iter=100,
        n_init=1,
        init_params="k-means++",
        weights_init=None,
        locations_init=None,
        scales_init=None,
        min_scale=1e-3,
        random_state=None,
        warm_start=False,
        checkpoint=None,
        n_jobs=None,
        verbose=False,
    ):
        super().__init__(
            n_components,
            families=self._families,
            tol=tol,
            max_iter=max_iter,
            n_init=n_init,
            init_params=init_params,
            weights_init=weights_init,
            locations_init=locations_init,
            scales_init=scales_init,
            min_scale=min_scale,
            random_state=random_state,
            warm_start=warm_start,
            checkpoint=checkpoint,
            n_jobs=n_jobs,
            verbose=verbose,
        )


class GaussianMixture(_Named):
    """The textbook diagonal mixture of Gaussians; see `Mixture`."""

    _families = ("gaussian",)


class LaplacianMixture(_Named):
    """The paper's LMM: medians and mean absolute deviations; see `Mixture`."""

    _families = ("laplace",)


class HybridMixture(_Named):
    """The paper's HGLMM: Gaussian or Laplacian per component and dimension; see `Mixture`."""

    _families = ("gaussian", "laplace")
