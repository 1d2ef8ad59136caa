"""Fisher vectors of Gaussian, Laplacian and hybrid mixtures, and an offline photo search built on them."""

from importlib import import_module
from typing import TYPE_CHECKING

from fishermix import aliases

__version__ = "0.2.0"

_MODULE_OF = {
    "Mixture": "fishermix.mixture",
    "GaussianMixture": "fishermix.mixture",
    "LaplacianMixture": "fishermix.mixture",
    "HybridMixture": "fishermix.mixture",
    "from_sklearn": "fishermix.mixture.convert",
    "FisherEncoder": "fishermix.fisher.encoder",
    "OnRows": "fishermix.fisher.sets",
    "RegularizedCCA": "fishermix.cca",
    "WordVectors": "fishermix.text.vectors",
    "SentenceEncoder": "fishermix.text.encoder",
    "ImageEncoder": "fishermix.vision.encoders",
    "ImageTextModel": "fishermix.model.model",
    "Captioner": "fishermix.caption.captioner",
    "PhotoIndex": "fishermix.retrieval.index",
    "FishermixError": "fishermix.errors",
    "FishermixWarning": "fishermix.errors",
}
_NOT_IN_CORE = {"PIL": "Pillow", "onnxruntime": "onnxruntime", "typer": "typer"}  # see tools/build_core.py
__all__ = ["__version__", *_MODULE_OF]

if TYPE_CHECKING:
    from fishermix.caption.captioner import Captioner as Captioner
    from fishermix.cca import RegularizedCCA as RegularizedCCA
    from fishermix.errors import FishermixError as FishermixError
    from fishermix.errors import FishermixWarning as FishermixWarning
    from fishermix.fisher.encoder import FisherEncoder as FisherEncoder
    from fishermix.fisher.sets import OnRows as OnRows
    from fishermix.mixture import GaussianMixture as GaussianMixture
    from fishermix.mixture import HybridMixture as HybridMixture
    from fishermix.mixture import LaplacianMixture as LaplacianMixture
    from fishermix.mixture import Mixture as Mixture
    from fishermix.mixture import from_sklearn as from_sklearn
    from fishermix.model.model import ImageTextModel as ImageTextModel
    from fishermix.retrieval.index import PhotoIndex as PhotoIndex
    from fishermix.text.encoder import SentenceEncoder as SentenceEncoder
    from fishermix.text.vectors import WordVectors as WordVectors
    from fishermix.vision.encoders import ImageEncoder as ImageEncoder


def __getattr__(name: str):
    # Imported on first use: a photo search should not wait for the mixtures' compiler.
    if name in _MODULE_OF:
        try:
            return getattr(import_module(_MODULE_OF[name]), name)
        except ModuleNotFoundError as error:
            if error.name not in _NOT_IN_CORE:
                raise
            raise ImportError(
                f"fishermix.{name} needs {_NOT_IN_CORE[error.name]}, which fishermix-core leaves out. Run: "
                "pip uninstall fishermix-core && pip install fishermix"
            ) from error
    raise AttributeError(f"module 'fishermix' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)


aliases.install()
