"""The paper's three tasks on points of the joint space."""

from __future__ import annotations

import numpy as np

from fishermix.evaluation.ranks import annotation_ranks, search_ranks, similarity_ranks, summary

Figures = dict[str, dict[str, float]]


def task_ranks(
    image_points: np.ndarray,
    sentence_points: np.ndarray,
    image_of: np.ndarray,
    image_hubness: np.ndarray | None = None,
    sentence_hubness: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """The rank of the first right answer of every query of each task.

    image_points (m, d), sentence_points (n, d), image_of (n,) : the image that each sentence describes
    image_hubness (m,), sentence_hubness (n,) : search and annotation are corrected for them if they are given

    The sentence similarity task is left out if every image has one sentence.
    """
    several = np.bincount(image_of, minlength=len(image_points))[image_of] > 1
    ranks = {
        "search": search_ranks(image_points, sentence_points, image_of, image_hubness),
        "annotation": annotation_ranks(image_points, sentence_points, image_of, sentence_hubness),
    }
    if several.any():
        ranks["similarity"] = similarity_ranks(sentence_points, image_of)
    return ranks


def figures(ranks: dict[str, np.ndarray]) -> Figures:
    """Recalls in percent, median and mean rank of each task."""
    return {task: summary(of_task) for task, of_task in ranks.items()}


def recall_sum(
    image_points: np.ndarray,
    sentence_points: np.ndarray,
    image_of: np.ndarray,
    image_hubness: np.ndarray | None = None,
    sentence_hubness: np.ndarray | None = None,
) -> float:
    """r@1 + r@5 + r@10 of search and of annotation: the score that training maximizes on the "dev" images."""
    found = (
        summary(search_ranks(image_points, sentence_points, image_of, image_hubness)),
        summary(annotation_ranks(image_points, sentence_points, image_of, sentence_hubness)),
    )
    return sum(task[recall] for task in found for recall in ("r@1", "r@5", "r@10"))
