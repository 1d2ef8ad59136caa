"""Mix the joint space that was tuned with one that the CCA solves on the tuned network's vectors.

The tuned maps are better where captions are like the training captions, the CCA where they are not. Both are
linear on both sides. So is their mixture: the scores are added, which concatenates the points, and the most
important directions of all points are kept. The result is turned to the axes of the space that the tuning
started from, so that what was trained there, such as a captioner, is close to what it needs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from fishermix.joint import CanonicalProjections, JointSpace, prepare_features, unit_rows

LinearMap = tuple[np.ndarray, np.ndarray]  # (features, d) and (d,): x -> x map - origin


def extend_sentences(space: JointSpace, vectors: np.ndarray) -> np.ndarray:
    """What the sentence side of a tuning learns from, (n, d + t): points before they are scaled to length 1,
    and the transformer's part of the sentence vectors.
    """
    return np.hstack(
        [vectors @ space._sentence_map - space._sentence_origin, _get_transformer(space, vectors)]
    )


def _get_transformer(space: JointSpace, vectors: np.ndarray) -> np.ndarray:
    return vectors[:, space.n_word_features :] if space.n_word_features else vectors[:, :0]


def make_tuned_space(
    start: JointSpace, image_map: np.ndarray, image_origin: np.ndarray, sentence_map: np.ndarray
) -> JointSpace:
    """The space of the tuned maps; `sentence_map` (d + t, d) applies to `extend_sentences`."""
    d = image_map.shape[1]
    of_sentences = start._sentence_map @ sentence_map[:d]
    if start.n_word_features:
        of_sentences[start.n_word_features :] += sentence_map[d:]
    origin = start._sentence_origin @ sentence_map[:d]
    return _make_space(start, (image_map, image_origin), (of_sentences, origin))


def mix_spaces(
    tuned: JointSpace,
    solved: JointSpace,
    share: float,
    images: np.ndarray,
    sentences: np.ndarray,
    start: JointSpace,
) -> JointSpace:
    """The space whose scores are `share` times those of `tuned` plus the rest of those of `solved`.

    images (m, p), sentences (n, q) : vectors that show which directions matter
    start : the space whose axes the result has; it has as many dimensions
    """
    prepared = prepare_features(images, tuned.image_power, tuned.image_l2, tuned.image_widths)
    parts = [(tuned, share), (solved, 1 - share)]
    of_images = _concatenate([(s._image_map, s._image_origin, share) for s, share in parts], prepared)
    of_sentences = _concatenate(
        [(s._sentence_map, s._sentence_origin, share) for s, share in parts], sentences
    )
    points = [
        unit_rows(rows @ of[0] - of[1]) for rows, of in ((prepared, of_images), (sentences, of_sentences))
    ]
    moments = sum(p.T.astype(np.float64) @ p / len(p) for p in points)
    kept = np.linalg.eigh(moments)[1][:, ::-1][:, : start._image_map.shape[1]]
    left, _, right = np.linalg.svd((points[1] @ kept).T @ start.sentence_points(sentences))
    turned = kept @ (left @ right)
    return _make_space(
        start,
        *((np.asarray(m @ turned), np.asarray(origin @ turned)) for m, origin in (of_images, of_sentences)),
    )


def _concatenate(parts: list[tuple[np.ndarray, np.ndarray, float]], rows: np.ndarray) -> LinearMap:
    """The maps side by side, each scaled so that its points have the length 1 on average, times its share."""
    maps, origins = [], []
    for linear, origin, share in parts:
        length = np.linalg.norm(rows @ linear - origin, axis=1).mean()
        maps.append(np.sqrt(share) / length * linear)
        origins.append(np.sqrt(share) / length * origin)
    return np.hstack(maps), np.concatenate(origins)


def _make_space(start: JointSpace, of_images: LinearMap, of_sentences: LinearMap) -> JointSpace:
    """A joint space with these maps; its means are those of `start`, changed as the origins need."""
    means = [
        mean + np.linalg.lstsq(linear.T.astype(np.float64), origin - mean @ linear, rcond=None)[0]
        for mean, (linear, origin) in (
            (start.projections.x_mean, of_images),
            (start.projections.y_mean, of_sentences),
        )
    ]
    ones = np.ones(of_images[0].shape[1])
    weights = [linear.astype(np.float32) for linear, _ in (of_images, of_sentences)]
    return replace(start, projections=CanonicalProjections(ones, *weights, *means), power=1.0, hubness=None)
