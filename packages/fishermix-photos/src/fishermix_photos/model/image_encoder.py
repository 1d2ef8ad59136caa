"""`ImageEncoder`: the vectors of photos as a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

from fishermix_photos.model.image_vectors import DEFAULT_VIEW, ImageVectors
from fishermix_photos.model.network import DEFAULT_NETWORK
from fishermix_photos.photos.open import ImageSource

DERIVED = ("_networks", "_sessions", "key", "max_pixels_")  # cached; recomputed after `set_params`


class ImageEncoder(TransformerMixin, BaseEstimator, ImageVectors):
    """Image features (n, d) float32: activations of a network, averaged over the crops of a view.

    The vector of an image depends only on the image, the network and the view. It has the same bits for
    every batch size, every number of threads and whatever other images are encoded with it.

    Parameters
    ----------
    encoder : str, path or a sequence of them, default "efficientnet-lite2"
        The name of a network, or an ONNX file with a JSON next to it (see `fishermix_photos.model.network`).
        The vectors of several networks are concatenated.
    view : {"squeeze", "flip", "center", "ten-crop"}, default "squeeze"
        "squeeze": the whole image, resized to a square. "flip": the same and its mirror image. "center": the
        middle square. "ten-crop": four corners and the middle, and their mirror images.
    batch_size : int, default 1
        The number of crops per run of the network. Larger batches are not faster on a CPU, and each crop
        takes about 20 MB per thread.
    threads : int, optional
        The number of threads; None uses all cores, or OMP_NUM_THREADS if that is less. Each thread decodes
        its own images and runs the network on them.
    max_pixels : int, optional
        Images with more pixels are rejected. None: a limit that depends on the RAM.

    Attributes
    ----------
    n_features : int
        The length d of a vector.
    widths : list of int
        The features of each network.
    key : str
        Identifies network and view: vectors with the same key are comparable and may be cached.
    max_pixels_ : int
        The pixel limit in effect.

    See Also
    --------
    fishermix_photos.ImageTextModel : compares photos with sentences.

    Examples
    --------
    >>> ImageEncoder().transform(["beach.jpg", "dog.png"]).shape
    (2, 1280)
    """

    def __init__(
        self,
        encoder: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = DEFAULT_NETWORK,
        view: str = DEFAULT_VIEW,
        batch_size: int = 1,
        threads: int | None = None,
        max_pixels: int | None = None,
    ):
        super().__init__(encoder, view, batch_size, threads, max_pixels)

    def fit(self, images: object = None, y: object = None) -> ImageEncoder:
        """Do nothing: there is nothing to learn.

        Returns
        -------
        self : ImageEncoder
            The encoder, unchanged.
        """
        return self

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """The names of the columns."""
        names = [os.path.basename(name).removesuffix(".onnx") for name in self.encoders]
        return np.array([f"{name}_{i}" for name, n in zip(names, self.widths) for i in range(n)], object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True  # paths; also bytes and PIL images, for which there is no tag
        return tags

    def transform(self, images: Sequence[ImageSource]) -> np.ndarray:
        """(n, d) float32 of n paths, bytes or PIL images; raises `FishermixError` if one is unreadable.

        Returns
        -------
        vectors : ndarray of shape (n, d)
            float32, in the order of the images.
        """
        return super().transform(images)

    def set_params(self, **parameters: object) -> ImageEncoder:
        """Set parameters; the network is opened again on next use."""
        for name in DERIVED:
            self.__dict__.pop(name, None)
        return super().set_params(**parameters)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in super().__getstate__().items() if name not in DERIVED}
