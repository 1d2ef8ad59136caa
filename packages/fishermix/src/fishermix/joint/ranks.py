"""The paper's three tasks and their measures: ranks of the first right answer, r@1, r@5, r@10, median, mean.

Similarity is the cosine, less half of an item's hubness (`fishermix.joint.hubness`) if that is given.
The rank of a query is 1 + the number of wrong items at least as similar as its most similar right item, so
that **ties count against us**. Similarities closer than `TIE` are ties, because equal points can differ by
that much after a float32 matrix product. A zero point (a sentence without a known word, a photo that could
not be read) resembles nothing, not even another zero point: as a query it gets the worst rank, and as an item
it comes last. A query without any right answer has no rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fishermix.joint.hubness import BLOCK_CELLS
from fishermix.joint.vectors import unit_rows

Figures = dict[str, dict[str, float]]
TIE = 1e-6
TASKS = ("search", "annotation", "similarity")


def summary(ranks: np.ndarray) -> dict[str, float]:
    """Recall at 1, 5 and 10 in percent, median and mean rank."""
    ranks = np.asarray(ranks)
    if not ranks.size:
        raise ValueError("There are no ranks to summarize: no query has a right answer.")
    recalls = {f"r@{k}": 100 * float(np.mean(ranks <= k)) for k in (1, 5, 10)}
    return {**recalls, "median": float(np.median(ranks)), "mean": float(np.mean(ranks))}


def task_ranks(
    image_points: np.ndarray,
    sentence_points: np.ndarray,
    image_of: np.ndarray,
    image_hubness: np.ndarray | None = None,
    sentence_hubness: np.ndarray | None = None,
    *,
    tasks: Sequence[str] = TASKS,
) -> dict[str, np.ndarray]:
    """The rank of the first right answer of every query of each task, int64 from 1, by the name of the task.

    - search: the query is a sentence, its image is right.
    - annotation: the query is an image with at least one sentence, its own sentences are right.
    - similarity: the query is a sentence of an image with several, the others are right; the query itself is
      not an item. The task is skipped if every image has one sentence.

    Parameters
    ----------
    image_points, sentence_points : arrays of shape (m, d) and (n, d)
        The points.
    image_of : array of shape (n,)
        The row of the image that each sentence describes.
    image_hubness, sentence_hubness : arrays of shape (m,) and (n,), optional
        Half of it is subtracted from the cosines.
    tasks : sequence of str
        Which of "search", "annotation" and "similarity".

    Returns
    -------
    ranks : dict of str to ndarray

    Examples
    --------
    >>> images = np.eye(2)
    >>> sentences = np.array([[1.0, 0.1], [0.9, 0.2], [1.0, 0.0]])
    >>> task_ranks(images, sentences, image_of=np.array([0, 0, 1]))["search"].tolist()
    [1, 1, 2]
    """
    images, sentences, image_of = _parse_points(image_points, sentence_points, image_of)
    every_image = np.arange(len(images))
    ranks = {}
    if "search" in tasks:
        answers = _Answers(image_of, every_image, len(images))
        ranks["search"] = _ranks(sentences, images, answers, hubness=image_hubness)
    if "annotation" in tasks:
        answers = _Answers(every_image, image_of, len(images))
        ranks["annotation"] = _ranks(images, sentences, answers, hubness=sentence_hubness)
    if "similarity" in tasks and len(np.unique(image_of)) < len(image_of):
        answers = _Answers(image_of, image_of, len(images))
        ranks["similarity"] = _ranks(sentences, sentences, answers, without_itself=True)
    return ranks


def figures(ranks: dict[str, np.ndarray]) -> Figures:
    """`r@1`, `r@5`, `r@10` in percent, `median` and `mean` of the ranks of each task.

    Parameters
    ----------
    ranks : dict of arrays
        What `task_ranks` returned.

    Returns
    -------
    figures : dict of str to dict

    Examples
    --------
    >>> figures({"search": np.array([1, 1, 7])})["search"]["r@10"]
    100.0
    """
    return {task: summary(of_task) for task, of_task in ranks.items()}


class Comparison(NamedTuple):
    """How much better one method is than another, in points of percent.

    difference : the recall of the first method less that of the second; low, high : its 95 % interval
    better : the share of the resamples in which the first method is better
    """

    difference: float
    low: float
    high: float
    better: float


def compare_recalls(
    first: np.ndarray,
    second: np.ndarray,
    image_of: np.ndarray,
    *,
    at: Sequence[int] = (1,),
    n_resamples: int = 2000,
    random_state: int = 0,
) -> Comparison:
    """Compare two methods on the same queries by a paired bootstrap over images.

    A resample draws images with replacement, each with all of its queries, because the sentences of an image
    are not independent.

    Parameters
    ----------
    first, second : array-like of shape (n,) or (n_seeds, n)
        The ranks of the queries. Recalls are averaged over the seeds.
    image_of : array of shape (n,)
        The number of the image that each query belongs to.
    at : sequence of int
        The ranks up to which an answer counts; several recalls are added up.
    n_resamples : int
        The number of resamples.
    random_state : int
        The seed.

    Returns
    -------
    Comparison
        The difference, its 95 % interval, and how often the first is better.

    Examples
    --------
    >>> found = compare_recalls([1, 1, 2, 1], [1, 3, 2, 4], image_of=[0, 1, 2, 3])
    >>> found.difference
    50.0
    """
    gain = sum(100 * (_hit_rates(first, k) - _hit_rates(second, k)) for k in at)
    _, row = np.unique(image_of, return_inverse=True)
    gains, sizes = np.bincount(row, gain), np.bincount(row)
    random = np.random.default_rng(random_state)
    drawn_gains = np.empty(n_resamples)
    for resample in range(n_resamples):
        drawn = random.integers(len(sizes), size=len(sizes))
        drawn_gains[resample] = gains[drawn].sum() / sizes[drawn].sum()
    low, high = np.percentile(drawn_gains, [2.5, 97.5])
    better = float(np.mean(drawn_gains > 0))
    return Comparison(
        difference=float(gains.sum() / sizes.sum()), low=float(low), high=float(high), better=better
    )


def _hit_rates(ranks: np.ndarray, k: int) -> np.ndarray:
    """The share of the seeds in which each query has a right answer among the first k."""
    return (np.atleast_2d(ranks) <= k).mean(axis=0)


def recall_sum(
    image_points: np.ndarray,
    sentence_points: np.ndarray,
    image_of: np.ndarray,
    image_hubness: np.ndarray | None = None,
    sentence_hubness: np.ndarray | None = None,
) -> float:
    """r@1 + r@5 + r@10 of search and of annotation: the score that training maximizes on the "dev" images."""
    hubness = image_hubness, sentence_hubness
    found = figures(task_ranks(image_points, sentence_points, image_of, *hubness, tasks=TASKS[:2]))
    return sum(found[task][recall] for task in found for recall in ("r@1", "r@5", "r@10"))


@dataclass
class _Answers:
    """Right answers: an item is right for a query of the same group (an image's number)."""

    group_of_query: np.ndarray
    group_of_item: np.ndarray
    n_groups: int

    def __post_init__(self) -> None:
        self.items = np.argsort(self.group_of_item, kind="stable")
        self.size = np.bincount(self.group_of_item, minlength=self.n_groups)
        self.first = np.cumsum(self.size) - self.size

    def pairs(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position in `queries`, right item) of all right answers, query by query."""
        group = self.group_of_query[queries]
        size = self.size[group]
        position = np.repeat(np.arange(len(queries)), size)
        within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        return position, self.items[self.first[group][position] + within]


def _ranks(
    queries: np.ndarray,
    items: np.ndarray,
    answers: _Answers,
    without_itself: bool = False,
    hubness: np.ndarray | None = None,
) -> np.ndarray:
    """Ranks of the queries that have an answer; unit or zero rows (n, d), a block of cosines at a time."""
    n_right = answers.size[answers.group_of_query] - without_itself
    asked = np.flatnonzero(n_right > 0)
    n_wrong = len(items) - n_right - without_itself
    nothing_items = np.flatnonzero(~items.any(axis=1))
    ranks = np.empty(len(asked), dtype=np.int64)
    for start, block, cosines in _cosine_blocks(queries, items, asked):
        if hubness is not None:
            cosines -= np.float32(0.5) * np.asarray(hubness, np.float32)
        cosines[:, nothing_items] = -np.inf
        cosines[~queries[block].any(axis=1)] = -np.inf
        if without_itself:
            cosines[np.arange(len(block)), block] = -np.inf
        position, right = answers.pairs(block)
        right_cosines = cosines[position, right]
        best = np.full(len(block), -np.inf, dtype=np.float32)
        np.maximum.at(best, position, right_cosines)
        at_least = best - np.float32(TIE)
        # Row by row: numpy counts the true values of one row five times faster than along an axis.
        before = np.array([np.count_nonzero(row) for row in cosines >= at_least[:, None]])
        before -= np.bincount(position[right_cosines >= at_least[position]], minlength=len(block))
        # The query itself, at minus infinity, is counted when its best answer is there too.
        ranks[start : start + len(block)] = 1 + np.minimum(before, n_wrong[block])
    return ranks


def _cosine_blocks(
    queries: np.ndarray, items: np.ndarray, asked: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """(start, query numbers, cosines (block, n_items)); a block's cosines are overwritten by the next."""
    rows = max(1, min(len(asked), BLOCK_CELLS // max(1, len(items))))
    cosines = np.empty((rows, len(items)), dtype=np.float32)
    for start in range(0, len(asked), rows):
        block = asked[start : start + rows]
        yield start, block, np.matmul(queries[block], items.T, out=cosines[: len(block)])


def _parse_points(
    image_points: np.ndarray, sentence_points: np.ndarray, image_of: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points of both as rows of length 1 in float32, and `image_of`, checked; zero rows stay zero."""
    images, sentences = _scale_rows(np.asarray(image_points)), _scale_rows(np.asarray(sentence_points))
    image_of = np.asarray(image_of)
    if images.shape[1] != sentences.shape[1]:
        raise ValueError(
            f"Images have {images.shape[1]} dimensions, but sentences have {sentences.shape[1]}."
        )
    if image_of.shape != (len(sentences),):
        raise ValueError(f"image_of must have one entry for each of the {len(sentences)} sentences.")
    if len(image_of) and (image_of.min() < 0 or image_of.max() >= len(images)):
        raise ValueError("image_of refers to an image that does not exist.")
    return unit_rows(images), unit_rows(sentences), image_of


def _scale_rows(points: np.ndarray) -> np.ndarray:
    """Rows divided by their largest entry, in float32, so that no square overflows or vanishes."""
    if points.ndim != 2:
        raise ValueError(f"Points must have two dimensions, not {points.ndim}.")
    largest = np.maximum(points.max(axis=1, initial=0), -points.min(axis=1, initial=0))[:, None]
    if not np.isfinite(largest).all():
        raise ValueError("Points must be finite.")
    return (points / np.where(largest > 0, largest, 1)).astype(np.float32, copy=False)
