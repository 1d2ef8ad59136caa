"""The result type: parts, samples, the paper's random splits, and sets put together."""

from pathlib import Path

import numpy as np
import pytest
from fishermix_lab.datasets.readers import Dataset, Protocol, combine
from hypothesis import given
from hypothesis import strategies as st
from refuses import refuses


def make(name="set", n_images=10, seed=0, protocol=None):
    rng = np.random.default_rng(seed)
    image_of = np.sort(np.concatenate([np.arange(n_images), rng.integers(0, n_images, 2 * n_images)]))
    names = [f"{i}.jpg" for i in range(n_images)]
    return Dataset(
        name=name,
        image_names=names,
        image_paths=[Path(name) / image for image in names],
        sentences=[f"{name}: sentence {j} of {i}" for j, i in enumerate(image_of)],
        image_of=image_of,
        splits=rng.choice(["train", "dev", "test"], n_images),
        protocol=protocol,
    )


def pairs(dataset):
    """Every sentence with the path and split of its image: what no selection may tear apart."""
    return [
        (sentence, dataset.image_paths[i], dataset.splits[i])
        for sentence, i in zip(dataset.sentences, dataset.image_of)
    ]


@given(st.permutations(range(10)), st.integers(0, 10))
def test_a_selection_keeps_pairs_and_order(order, size):
    dataset, rows = make(), order[:size]
    selected = dataset.select(rows)
    assert selected.image_names == [f"{row}.jpg" for row in rows]
    assert (np.diff(selected.image_of) >= 0).all()
    chosen = {dataset.image_paths[row] for row in rows}
    assert sorted(pairs(selected)) == sorted(pair for pair in pairs(dataset) if pair[1] in chosen)


def test_the_parts_are_the_whole():
    dataset = make(n_images=50)
    parts = [dataset.part(split) for split in ("train", "dev", "test")]
    assert sorted(pair for part in parts for pair in pairs(part)) == sorted(pairs(dataset))
    assert {name: len(part) for name, part in zip(("train", "dev", "test"), parts)} == dataset.counts()


def test_it_is_shown_in_a_line():
    dataset = make(n_images=1000)
    assert repr(dataset) == f"Dataset(set: 1000 images {dataset.counts()}, 3000 sentences)"


def test_an_empty_part_says_what_there_is():
    with refuses("too_few"):
        make(n_images=50).part("val")


@pytest.mark.parametrize(
    ("n_images", "protocol"), [(1000, Protocol(100, 100, 20)), (31783, Protocol(1000, 1000, 5))]
)
def test_the_papers_splits(n_images, protocol):
    dataset = make(n_images=n_images, protocol=protocol)
    drawn = [dataset.paper_splits(repeat).splits for repeat in range(3)]
    for splits in drawn:
        found = dict(zip(*np.unique(splits, return_counts=True)))
        assert found == {
            "dev": protocol.dev,
            "test": protocol.test,
            "train": n_images - protocol.dev - protocol.test,
        }
    assert np.array_equal(drawn[1], dataset.paper_splits(1).splits)
    assert not np.array_equal(drawn[0], drawn[1])
    # A random test set of a tenth meets another in about a tenth of its images.
    share = np.mean(drawn[1][drawn[0] == "test"] == "test")
    assert share == pytest.approx(protocol.test / n_images, abs=0.1)


def test_samples_are_seeded():
    dataset = make(n_images=200)
    first = dataset.sample("test", 20, seed=0)
    assert first.image_names == dataset.sample("test", 20, seed=0).image_names
    assert first.image_names != dataset.sample("test", 20, seed=1).image_names
    assert set(pairs(first)) < set(pairs(dataset.part("test")))
    with refuses("too_few"):
        dataset.sample("test", 2000)


def test_combined_sets_keep_their_pairs():
    one, two, three = make("one", 5), make("two", 7, seed=1), make("two", 6, seed=2)
    both = combine([one, two, three])
    assert sorted(pairs(both)) == sorted([*pairs(one), *pairs(two), *pairs(three)])
    assert both.image_names == one.image_names + two.image_names + three.image_names
    assert combine([one]) is one


@pytest.mark.parametrize(
    "change",
    [
        {"image_of": [0, 2]},
        {"image_of": [-1, 0]},
        {"image_of": [0]},
        {"splits": ["train"]},
        {"image_paths": []},
    ],
)
def test_parts_that_do_not_fit_are_refused(change):
    fields = {
        "name": "x",
        "image_names": ["a", "b"],
        "image_paths": [Path("a"), Path("b")],
        "sentences": ["s", "t"],
        "image_of": [0, 1],
        "splits": ["train", "dev"],
    }
    with pytest.raises(ValueError):
        Dataset(**fields | change)
