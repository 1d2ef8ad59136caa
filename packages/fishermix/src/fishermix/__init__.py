"""Fisher vectors of Gaussian, Laplacian and hybrid mixtures, CCA and sentence vectors for scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.3.0"

_MODULE_OF = {
    "Mixture": "mixture",
    "GaussianMixture": "mixture",
    "LaplacianMixture": "mixture",
    "HybridMixture": "mixture",
    "FisherEncoder": "fisher.encoder",
    "OnRows": "fisher.on_rows",
    "VLADEncoder": "fisher.hard",
    "BagOfWordsEncoder": "fisher.hard",
    "SpatialPyramid": "fisher.pyramid",
    "RegularizedCCA": "cca.estimator",
    "RegularizedCCACV": "cca.cross_validation",
    "WordVectors": "text.word_vectors",
    "SentenceEncoder": "text.encoder",
    "JointSpace": "joint.space",
    "FishermixError": "errors",
    "FishermixWarning": "errors",
}
__all__ = ["__version__", *_MODULE_OF]

if TYPE_CHECKING:
    from fishermix.cca.cross_validation import RegularizedCCACV as RegularizedCCACV
    from fishermix.cca.estimator import RegularizedCCA as RegularizedCCA
    from fishermix.errors import FishermixError as FishermixError
    from fishermix.errors import FishermixWarning as FishermixWarning
    from fishermix.fisher.encoder import FisherEncoder as FisherEncoder
    from fishermix.fisher.hard import BagOfWordsEncoder as BagOfWordsEncoder
    from fishermix.fisher.hard import VLADEncoder as VLADEncoder
    from fishermix.fisher.on_rows import OnRows as OnRows
    from fishermix.fisher.pyramid import SpatialPyramid as SpatialPyramid
    from fishermix.joint.space import JointSpace as JointSpace
    from fishermix.mixture import GaussianMixture as GaussianMixture
    from fishermix.mixture import HybridMixture as HybridMixture
    from fishermix.mixture import LaplacianMixture as LaplacianMixture
    from fishermix.mixture import Mixture as Mixture
    from fishermix.text.encoder import SentenceEncoder as SentenceEncoder
    from fishermix.text.word_vectors import WordVectors as WordVectors


def export_lazily(package: str, module_of: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose public names are defined in these of its modules.

    They are imported on first use: a search should not wait for a compiler.
    """

    def __getattr__(name: str) -> object:
        if name in module_of:
            return getattr(import_module(f"{package}.{module_of[name]}"), name)
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return __getattr__


__getattr__ = export_lazily(__name__, _MODULE_OF)


def __dir__() -> list[str]:
    return sorted(__all__)
