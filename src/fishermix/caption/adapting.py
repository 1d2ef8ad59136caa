"""A trained captioner for another joint space of the same photos.

A captioner reads points of the joint space in which it was trained. When that space is trained again, the
photos keep their places but for a map that is almost linear; it is fitted by least squares, and the network
and its words stay as they are.
"""

from __future__ import annotations

import numpy as np

from fishermix.caption.captioner import Captioner

RIDGE = 1e-3  # of the mean square of a coordinate


def fit_image_map(captioner: Captioner, old: np.ndarray, new: np.ndarray, model_key: str) -> Captioner:
    """The captioner for the joint space `model_key`.

    old (n, at least d) and new (n, k) are the points of the same photos in the joint space of `captioner` and
    in the new one.
    """
    if captioner.image_map is not None:
        old = old[:, : len(captioner.image_map)] @ captioner.image_map
    wanted = old[:, : captioner.dimension].astype(np.float64)
    given = new.astype(np.float64)
    gram = given.T @ given
    gram += RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram))
    found = np.linalg.solve(gram, given.T @ wanted).astype(np.float32)
    parts = captioner.vocabulary, captioner.points, captioner.weights
    return Captioner(*parts, model_key=model_key, image_map=found)
