"""Mix the joint space that was tuned with one that the CCA solves on the tuned network's vectors.

The tuned maps are better where captions are like the training captions, the CCA where they are not. Both are
linear on both sides. So is their mixture: the scores are added, which concatenates the points, and the most
important directions of all points are kept. The result is turned to the axes of the space that the tuning
started from, so that what was trained there, such as a captioner, is close to what it needs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from fishermix.joint.projections import CanonicalProjections
from fishermix.joint.space import JointSpace, prepare_features
from fishermix.joint.vectors import unit_rows

LinearMap = tuple[np.ndarray, np.ndarray]  # (features, d) and (d,): x -> x map - origin


def extend_sentences(space: JointSpace, vectors: np.ndarray) -> np.ndarray:
    """What the sentence side of a tuning learns from, (n, d + t): points before they are scaled to length 1,
    and the transformer's part of the sentence vectors.
    """
    transformed = vectors[:, space.right_optional :] if space.right_optional else vectors[:, :0]
    return np.hstack([vectors @ space.right_map - space.right_origin, transformed])


def make_tuned_space(
    start: JointSpace, image_map: np.ndarray, image_origin: np.ndarray, sentence_map: np.ndarray
) -> JointSpace:
    """The space of the tuned maps; `sentence_map` (d + t, d) applies to `extend_sentences`."""
    d = image_map.shape[1]
    of_sentences = start.right_map @ sentence_map[:d]
    if start.right_optional:
        of_sentences[start.right_optional :] += sentence_map[d:]
    origin = start.right_origin @ sentence_map[:d]
    return _make_space(start, (image_map, image_origin), (of_sentences, origin))


def mix_spaces(
    spaces: tuple[JointSpace, JointSpace],
    share: float,
    images: np.ndarray,
    sentences: np.ndarray,
    start: JointSpace,
) -> JointSpace:
    """The space whose scores are `share` times those of the first plus the rest of those of the second.

    images (m, p), sentences (n, q) : vectors that show which directions matter
    start : the space whose axes the result has; it has as many dimensions
    """
    prepared = prepare_features(images, start.left_power, start.left_l2, start.left_widths)
    of_images = _join_maps([(one.left_map, one.left_origin) for one in spaces], share, prepared)
    of_sentences = _join_maps([(one.right_map, one.right_origin) for one in spaces], share, sentences)
    points = [
        unit_rows(rows @ linear - origin)
        for rows, (linear, origin) in ((prepared, of_images), (sentences, of_sentences))
    ]
    moments = sum(p.T.astype(np.float64) @ p / len(p) for p in points)
    kept = np.linalg.eigh(moments)[1][:, ::-1][:, : start.left_map.shape[1]]
    left, _, right = np.linalg.svd((points[1] @ kept).T @ start.embed_right(sentences))
    turned = kept @ (left @ right)
    maps = [(linear @ turned, origin @ turned) for linear, origin in (of_images, of_sentences)]
    return _make_space(start, *maps)


def _join_maps(maps: list[LinearMap], share: float, rows: np.ndarray) -> LinearMap:
    """Two maps side by side, each scaled so that its points have the length 1 on average, times its share."""
    scales = [
        np.sqrt(part) / np.linalg.norm(rows @ linear - origin, axis=1).mean()
        for (linear, origin), part in zip(maps, (share, 1 - share), strict=True)
    ]
    scaled = [(scale * linear, scale * origin) for scale, (linear, origin) in zip(scales, maps, strict=True)]
    return np.hstack([linear for linear, _ in scaled]), np.concatenate([origin for _, origin in scaled])


def _make_space(start: JointSpace, of_images: LinearMap, of_sentences: LinearMap) -> JointSpace:
    """A joint space with these maps; its means are those of `start`, changed as the origins need."""
    pairs = (start.projections.x_mean, of_images), (start.projections.y_mean, of_sentences)
    means = [
        mean + np.linalg.lstsq(linear.T.astype(np.float64), origin - mean @ linear, rcond=None)[0]
        for mean, (linear, origin) in pairs
    ]
    ones = np.ones(of_images[0].shape[1])
    weights = [linear.astype(np.float32) for linear, _ in (of_images, of_sentences)]
    return replace(start, projections=CanonicalProjections(ones, *weights, *means), power=1.0, hubness=None)
