"""The mixtures of the paper by name: `GaussianMixture`, `LaplacianMixture` and `HybridMixture`."""

from __future__ import annotations

import os
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fishermix.errors import FishermixError
from fishermix.mixture.estimator import Mixture


class GaussianMixture(Mixture):
    """The diagonal Gaussian mixture model, also with the attributes of scikit-learn's `GaussianMixture`.

    EM fits means and standard deviations: `locations_` and `scales_`.

    Parameters
    ----------
    n_components : int, default 1
        Number of components K.
    covariance_type : {"diag"}, default "diag"
        Accepted for the interface of scikit-learn: one variance per component and dimension.
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
        Means.
    scales_ : ndarray of shape (K, D)
        Standard deviations.
    choice_ : ndarray of shape (K, D)
        Zeros: there is one family.
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
    means_ : ndarray of shape (K, D)
        The same as `locations_`.
    covariances_ : ndarray of shape (K, D)
        The squares of `scales_`, as of ``covariance_type="diag"`` in scikit-learn.
    precisions_ : ndarray of shape (K, D)
        The inverse of `covariances_`.
    precisions_cholesky_ : ndarray of shape (K, D)
        The inverse of `scales_`.

    See Also
    --------
    fishermix.Mixture : all parameters and attributes.
    sklearn.mixture.GaussianMixture : also with full covariances.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal([[-5.0], [5.0]], size=(2, 500)).reshape(-1, 1)
    >>> mixture = GaussianMixture(n_components=2, random_state=0).fit(X)
    >>> sorted(mixture.means_.ravel().round().tolist())
    [-5.0, 5.0]
    """

    _fixed_families: ClassVar[bool] = True

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "diag",
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
        super().__init__(
            n_components,
            families=("gaussian",),
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
            working_memory=working_memory,
            verbose=verbose,
        )
        self.covariance_type = covariance_type

    def _validate_params(self) -> None:
        if self.covariance_type != "diag":
            raise FishermixError(
                f"covariance_type={self.covariance_type!r} is not offered: covariances are diagonal. Use "
                "covariance_type='diag', or sklearn.mixture.GaussianMixture.",
                code="wrong_parameter",
            )
        super()._validate_params()

    @property
    def means_(self) -> np.ndarray:
        return self.locations_

    @property
    def covariances_(self) -> np.ndarray:
        return self.scales_**2

    @property
    def precisions_(self) -> np.ndarray:
        return self.scales_**-2

    @property
    def precisions_cholesky_(self) -> np.ndarray:
        return 1 / self.scales_


class LaplacianMixture(Mixture):
    """The paper's LMM, a mixture of Laplacians: EM fits medians and mean absolute deviations.

    See `Mixture` for the density.

    Parameters
    ----------
    n_components : int, default 1
        Number of components K.
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
        Medians.
    scales_ : ndarray of shape (K, D)
        Mean absolute deviations from the median.
    choice_ : ndarray of shape (K, D)
        Zeros: there is one family.
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
    fishermix.Mixture : all parameters and attributes.
    fishermix.HybridMixture : chooses a Gaussian where that fits better.
    scipy.stats.laplace : the distribution in one dimension.

    References
    ----------
    Klein, Lev, Sadeh, Wolf (CVPR 2015), Associating Neural Word Embeddings with Deep Image Representations
    using Fisher Vectors; arXiv:1411.7399.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [2.0], [100.0], [1.0]])
    >>> mixture = LaplacianMixture(n_components=1).fit(X)
    >>> mixture.locations_.tolist()  # the median
    [[1.0]]
    """

    _fixed_families: ClassVar[bool] = True

    def __init__(
        self,
        n_components: int = 1,
        *,
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
        super().__init__(
            n_components,
            families=("laplace",),
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
            working_memory=working_memory,
            verbose=verbose,
        )


class HybridMixture(Mixture):
    """The paper's HGLMM: EM chooses a Gaussian or a Laplacian for each component and dimension.

    ``choice_[k, d]`` is 0 for a Gaussian and 1 for a Laplacian. See `Mixture` for the density.

    Parameters
    ----------
    n_components : int, default 1
        Number of components K.
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
        0 where the Gaussian was chosen, 1 where the Laplacian was.
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
    fishermix.Mixture : all parameters and attributes, and other families.
    fishermix.FisherEncoder : Fisher vectors under this mixture.

    References
    ----------
    Klein, Lev, Sadeh, Wolf (CVPR 2015), Associating Neural Word Embeddings with Deep Image Representations
    using Fisher Vectors; arXiv:1411.7399.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(size=2000), rng.laplace(size=2000)])
    >>> HybridMixture(n_components=1, random_state=0).fit(X).choice_.tolist()
    [[0, 1]]
    """

    _fixed_families: ClassVar[bool] = True

    def __init__(
        self,
        n_components: int = 1,
        *,
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
        super().__init__(
            n_components,
            families=("gaussian", "laplace"),
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
            working_memory=working_memory,
            verbose=verbose,
        )
