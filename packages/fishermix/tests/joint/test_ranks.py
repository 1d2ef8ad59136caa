"""Ranks against a naive oracle that sorts nothing and blocks nothing."""

import numpy as np
import pytest
from fishermix.joint import ranks as module
from fishermix.joint.ranks import compare_recalls, summary, task_ranks
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


def cosine(a, b):
    a, b = a.astype(float), b.astype(float)
    if not a.any() or not b.any():
        return -np.inf
    return a @ b / np.sqrt((a @ a) * (b @ b))


def naive_rank(query, items, right, left_out=()):
    """1 + how many wrong items are at least as near as the nearest right one; None without a right one."""
    best = max((cosine(query, items[j]) for j in right), default=None)
    if best is None:
        return None
    wrong = [j for j in range(len(items)) if j not in right and j not in left_out]
    return 1 + sum(cosine(query, items[j]) >= best - 1e-9 for j in wrong)


def naive(images, sentences, image_of):
    own = [set(np.flatnonzero(image_of == i)) for i in range(len(images))]
    annotation = [naive_rank(images[i], sentences, own[i]) for i in range(len(images))]
    search = [naive_rank(sentences[j], images, {image_of[j]}) for j in range(len(sentences))]
    similarity = [naive_rank(s, sentences, own[image_of[j]] - {j}, {j}) for j, s in enumerate(sentences)]
    return [[rank for rank in task if rank is not None] for task in (annotation, search, similarity)]


def search_ranks(images, sentences, image_of, hubness=None):
    return task_ranks(images, sentences, image_of, image_hubness=hubness, tasks=["search"])["search"]


def annotation_ranks(images, sentences, image_of, hubness=None):
    return task_ranks(images, sentences, image_of, sentence_hubness=hubness, tasks=["annotation"])[
        "annotation"
    ]


def similarity_ranks(sentences, image_of):
    """No rank if every image has one sentence."""
    images = np.ones((max(image_of) + 1, sentences.shape[1]))
    return task_ranks(images, sentences, image_of, tasks=["similarity"]).get("similarity", np.array([], int))


def ours(images, sentences, image_of):
    return [
        annotation_ranks(images, sentences, image_of).tolist(),
        search_ranks(images, sentences, image_of).tolist(),
        similarity_ranks(sentences, image_of).tolist(),
    ]


@st.composite
def tied_worlds(draw):
    """Few small whole numbers: many ties, many zero points, images with no, one or many sentences."""
    n_images, n_sentences = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    points = hnp.arrays(np.float32, (n_images + n_sentences, 2), elements=st.integers(-2, 2))
    image_of = draw(hnp.arrays(np.int64, n_sentences, elements=st.integers(0, n_images - 1)))
    rows = draw(points)
    return rows[:n_images], rows[n_images:], image_of


@settings(max_examples=300, deadline=None)
@given(tied_worlds(), st.sampled_from([1, 7, 1000]))
def test_equals_the_naive_oracle_with_ties_and_zero_points(world, block_cells):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_CELLS", block_cells)
        assert ours(*world) == naive(*world)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_the_naive_oracle_on_random_points(dtype):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(30, 16)).astype(dtype)
    image_of = rng.integers(0, 30, 100)
    sentences = (images[image_of] + 2 * rng.normal(size=(100, 16))).astype(dtype)
    assert ours(images, sentences, image_of) == naive(images, sentences, image_of)


def test_the_ranks_of_a_small_world_by_hand():
    images = np.array([[1, 0], [0, 1]])
    sentences = np.array([[1, 0], [1, 2], [0, 1], [2, 1]])
    image_of = np.array([0, 0, 1, 1])
    assert search_ranks(images, sentences, image_of).tolist() == [1, 2, 1, 2]
    assert annotation_ranks(images, sentences, image_of).tolist() == [1, 1]
    # (1,0): (2,1) before its own (1,2); (1,2): (0,1) and (2,1) before (1,0); and the mirror images of both.
    assert similarity_ranks(sentences, image_of).tolist() == [2, 3, 2, 3]


def test_a_duplicate_of_the_right_sentence_counts_against_us():
    rng = np.random.default_rng(1)
    images = rng.normal(size=(500, 64)).astype(np.float32)
    sentences = np.repeat(images[:1] + 0.1, 500, axis=0)
    assert (annotation_ranks(images, sentences, np.arange(500)) == 500).all()


def test_zero_points_are_never_first():
    images = np.array([[1.0, 0], [-1, 0], [0, 0]])
    sentences = np.array([[0.0, 0], [1, 0], [-1, 0.5]])
    assert search_ranks(images, sentences, np.array([0, 2, 1])).tolist() == [3, 3, 1]
    assert annotation_ranks(images, sentences, np.array([0, 1, 2])).tolist() == [3, 2, 3]
    everything_zero = np.zeros((4, 3))
    assert similarity_ranks(everything_zero, np.array([0, 0, 1, 1])).tolist() == [3, 3, 3, 3]


def test_length_does_not_matter_not_even_extreme_length():
    rng = np.random.default_rng(2)
    images, sentences = rng.normal(size=(20, 8)), rng.normal(size=(40, 8))
    image_of = np.repeat(np.arange(20), 2)
    lengths = 10.0 ** rng.integers(-200, 200, (40, 1))
    assert ours(images, sentences * lengths, image_of) == ours(images, sentences, image_of)
    assert ours(images.astype(np.float32) * np.float32(1e-30), sentences, image_of) == ours(
        images, sentences, image_of
    )


def test_queries_without_an_answer_have_no_rank():
    points = np.eye(3)
    assert len(annotation_ranks(points, points[:2], np.array([0, 2]))) == 2
    assert len(similarity_ranks(points, np.array([0, 0, 1]))) == 2
    with pytest.raises(ValueError, match="no ranks"):
        summary(similarity_ranks(points, np.array([0, 1, 2])))


def test_summary_by_hand():
    assert summary(np.array([1, 2, 5, 6, 10, 11, 1, 100])) == {
        "r@1": 25.0,
        "r@5": 50.0,
        "r@10": 75.0,
        "median": 5.5,
        "mean": 17.0,
    }


@pytest.mark.parametrize(
    ("images", "sentences", "image_of"),
    [
        (np.ones((2, 3)), np.ones((2, 4)), [0, 1]),
        (np.ones((2, 3)), np.ones((2, 3)), [0, 2]),
        (np.ones((2, 3)), np.ones((2, 3)), [0, -1]),
        (np.ones((2, 3)), np.ones((2, 3)), [0]),
        (np.full((2, 3), np.nan), np.ones((2, 3)), [0, 1]),
        (np.ones(3), np.ones((2, 3)), [0, 1]),
    ],
)
def test_wrong_input_is_refused(images, sentences, image_of):
    with pytest.raises(ValueError):
        search_ranks(images, sentences, np.array(image_of))


def test_half_of_the_hubness_is_subtracted_from_the_items():
    rng = np.random.default_rng(3)
    images, sentences = rng.normal(size=(12, 4)), rng.normal(size=(30, 4))
    image_of = rng.integers(0, 12, 30)
    image_of[:12] = np.arange(12)
    of_images, of_sentences = rng.normal(size=12), rng.normal(size=30)
    unit = [points / np.linalg.norm(points, axis=1, keepdims=True) for points in (images, sentences)]
    cosines = unit[0] @ unit[1].T
    by_sentence, by_image = cosines - of_images[:, None] / 2, cosines - of_sentences / 2
    search = [1 + sum(by_sentence[:, j] > by_sentence[image_of[j], j]) for j in range(30)]
    annotation = [1 + sum(by_image[i][image_of != i] > by_image[i][image_of == i].max()) for i in range(12)]
    assert search_ranks(images, sentences, image_of, of_images).tolist() == search
    assert annotation_ranks(images, sentences, image_of, of_sentences).tolist() == annotation


def naive_comparison(first, second, image_of, at, n_resamples, seed):
    """The differences of the recalls of all resamples, query by query."""
    rng, images = np.random.default_rng(seed), sorted(set(image_of))
    differences = []
    for _ in range(n_resamples):
        drawn = rng.integers(len(images), size=len(images))
        queries = [
            query for place in drawn for query in range(len(image_of)) if image_of[query] == images[place]
        ]
        found = [
            sum(
                100 * np.mean([ranks[seed][query] <= k for seed in range(len(ranks)) for query in queries])
                for k in at
            )
            for ranks in (first, second)
        ]
        differences.append(found[0] - found[1])
    return differences


@pytest.mark.parametrize("at", [(1,), (1, 5, 10)])
def test_the_bootstrap_agrees_with_a_naive_one(at):
    rng = np.random.default_rng(0)
    image_of = np.array([7, 2, 2, 9, 7, 4, 4, 4])  # images have one to three queries, in any order
    first, second = rng.integers(1, 14, size=(2, 3, 8))
    found = compare_recalls(first, second, image_of, at=at, n_resamples=50, random_state=3)
    expected = naive_comparison(first, second, image_of, at, 50, 3)
    np.testing.assert_allclose([found.low, found.high], np.percentile(expected, [2.5, 97.5]))
    assert found.better == pytest.approx(np.mean(np.array(expected) > 1e-9))
    whole = sum(100 * (np.mean(first <= k) - np.mean(second <= k)) for k in at)
    assert found.difference == pytest.approx(whole)


def test_the_interval_covers_the_true_difference():
    """Ranks of methods with recalls 0.5 and 0.4: 95 of 100 intervals of independent draws cover 10 points."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(100):
        hits = rng.uniform(size=(2, 300)) < np.array([[0.5], [0.4]])
        found = compare_recalls(*np.where(hits, 1, 2), np.arange(300), n_resamples=300)
        covered += found.low <= 10 <= found.high
    assert 88 <= covered <= 99


def test_one_query_alone_and_equal_methods_have_no_difference():
    ranks = np.array([1, 3, 2])
    assert compare_recalls(ranks, ranks, np.array([0, 0, 1])) == (0.0, 0.0, 0.0, 0.0)
