"""The paper's three tasks on points of the joint space."""

from __future__ import annotations

import numpy as np

from fishermix.retrieval.ranks import annotation_ranks, search_ranks, similarity_ranks, summary

Figures = dict[str, dict[str, float]]


def task_ranks(
    image_points: np.ndarray, sentence_points: np.ndarray, image_of: np.ndarray
) -> dict[str, np.ndarray]:
    """The rank of the first right answer of every query of each task.

    image_points (m, d), sentence_points (n, d), image_of (n,): the image that each sentence describes.
    """
    several = np.bincount(image_of, minlength=len(image_points))[image_of] > 1
    ranks = {
        "search": search_ranks(image_points, sentence_points, image_of),
        "annotation": annotation_ranks(image_points, sentence_points, image_of),
    }
    if several.any():
        ranks["similarity"] = similarity_ranks(sentence_points, image_of)
    return ranks


def figures(ranks: dict[str, np.ndarray]) -> Figures:
    """Recalls in percent, median and mean rank of each task."""
    return {task: summary(of_task) for task, of_task in ranks.items()}


def recall_sum(image_points: np.ndarray, sentence_points: np.ndarray, image_of: np.ndarray) -> float:
    """What is maximised on the validation images: r@1 + r@5 + r@10 of search and of annotation."""
    found = (
        summary(search_ranks(image_points, sentence_points, image_of)),
        summary(annotation_ranks(image_points, sentence_points, image_of)),
    )
    return sum(task[recall] for task in found for recall in ("r@1", "r@5", "r@10"))
