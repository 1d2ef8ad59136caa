"""Ranks of 25,000 sentences against 5,000 images in 256 dimensions, as on COCO's 5,000 test images."""

from __future__ import annotations

import numpy as np
from fishermix.joint.ranks import task_ranks

from benchmarks.timing import Row, compare, peak_memory, roofline, thread_counts, use_threads


def run() -> list[Row]:
    images, sentences, image_of = _points(5000, 5, 256)
    sides = images, sentences, image_of
    same = _full_search(*sides) == task_ranks(*sides, tasks=["search"])["search"]
    assert same.mean() > 0.999, "ranks differ from plain numpy's by more than near ties"
    _, memory = peak_memory(lambda: task_ranks(*sides, tasks=["search"]))
    _, full_memory = peak_memory(lambda: _full_search(images, sentences, image_of))
    memories = f"{memory / 2**20:.0f} MiB, numpy {full_memory / 2**20:.0f} MiB"
    runs = {
        "search": (lambda: task_ranks(*sides, tasks=["search"]), lambda: _full_search(*sides)),
        "annotation": (lambda: task_ranks(*sides, tasks=["annotation"]), lambda: _full_annotation(*sides)),
    }
    table = []
    for threads in thread_counts():
        for name, (ours, full) in runs.items():
            with use_threads(threads):
                found = compare({"ours": ours, "full": full}, 5)
            work = f"{name} ranks, 25,000 sentences, 5,000 images, 256-D"
            floor = roofline(2.0 * len(images) * len(sentences) * images.shape[1], 0, np.float32, threads)
            given = "<= 1", memories if name == "search" else "", threads, floor
            table.append(Row(work, found["ours"], "numpy, full matrix:", found["full"], *given))
    return table


def _points(n_images: int, sentences_each: int, dimension: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(n_images, dimension)).astype(np.float32)
    image_of = np.repeat(np.arange(n_images), sentences_each)
    sentences = images[image_of] + 3 * rng.normal(size=(len(image_of), dimension)).astype(np.float32)
    return images, sentences, image_of


def _unit(points: np.ndarray) -> np.ndarray:
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def _full_search(images: np.ndarray, sentences: np.ndarray, image_of: np.ndarray) -> np.ndarray:
    """Plain numpy: the whole matrix of cosines, then a count per row."""
    cosines = _unit(sentences) @ _unit(images).T
    return (cosines >= cosines[np.arange(len(cosines)), image_of][:, None]).sum(axis=1)


def _full_annotation(images: np.ndarray, sentences: np.ndarray, image_of: np.ndarray) -> np.ndarray:
    cosines = _unit(images) @ _unit(sentences).T
    own = cosines[image_of, np.arange(len(sentences))].reshape(len(images), -1)
    best = own.max(axis=1, keepdims=True)
    return 1 + (cosines >= best).sum(axis=1) - (own >= best).sum(axis=1)
