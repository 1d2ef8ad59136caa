"""The paper's three tasks on points of the joint space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fishermix.evaluation.ranks import annotation_ranks, search_ranks, similarity_ranks, summary

if TYPE_CHECKING:
    from fishermix.model.hubness import HubnessCorrection

Figures = dict[str, dict[str, float]]


def task_ranks(
    image_points: np.ndarray,
    sentence_points: np.ndarray,
    image_of: np.ndarray,
    hubness: HubnessCorrection | None = None,
) -> dict[str, np.ndarray]:
    """The rank of the first right answer of every query of each task.

    image_points (m, d), sentence_points (n, d), image_of (n,): the image that each sentence describes. With
    `crowding`, search and annotation go by the match, else by the cosine; similarity goes by the cosine.
    """
    several = np.bincount(image_of, minlength=len(image_points))[image_of] > 1
    ranks = _across(image_points, sentence_points, image_of, hubness)
    if several.any():
        ranks["similarity"] = similarity_ranks(sentence_points, image_of)
    return ranks


def _across(
    image_points: np.ndarray,
    sentence_points: np.ndarray,
    image_of: np.ndarray,
    hubness: HubnessCorrection | None,
) -> dict[str, np.ndarray]:
    of_images = hubness.of_images(image_points) if hubness else None
    of_sentences = hubness.of_sentences(sentence_points) if hubness else None
    return {
        "search": search_ranks(image_points, sentence_points, image_of, of_images),
        "annotation": annotation_ranks(image_points, sentence_points, image_of, of_sentences),
    }


def figures(ranks: dict[str, np.ndarray]) -> Figures:
    """Recalls in percent, median and mean rank of each task."""
    return {task: summary(of_task) for task, of_task in ranks.items()}


def recall_sum(
    image_points: np.ndarray,
    sentence_points: np.ndarray,
    image_of: np.ndarray,
    hubness: HubnessCorrection | None = None,
) -> float:
    """What is maximised on the validation images: r@1 + r@5 + r@10 of search and of annotation."""
    found = figures(_across(image_points, sentence_points, image_of, hubness))
    return sum(task[recall] for task in found.values() for recall in ("r@1", "r@5", "r@10"))
