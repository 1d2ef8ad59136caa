"""Training on a cluster of two processes gives what one process gives."""

import json
import logging

import numpy as np
import pytest
from fishermix import WordVectors
from fishermix.distributed.cluster import connect
from fishermix_photos.lab.datasets import open_dataset
from fishermix_photos.lab.recipe import Recipe
from fishermix_photos.lab.training import train_model
from PIL import Image


@pytest.fixture(scope="module")
def client():
    with connect("local:2") as client:
        client.forward_logging(level=logging.CRITICAL)
        yield client


def same_bits(first, second):
    names = ("weights_", "locations_", "scales_", "choice_")
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in names)


def small_world(folder):
    """Word vectors, and a data set in `folder` of twelve photos in the colours that their sentences name."""
    (folder / "images").mkdir()
    lines = []
    for number in range(12):
        colour = ("red", "green", "blue")[number % 3]
        Image.new("RGB", (32 + number, 32), colour).save(folder / "images" / f"{number}.png")
        line = {"image": f"{number}.png", "captions": [f"a {colour} square", f"all {colour}"]}
        lines.append(json.dumps(line | {"split": "val" if number < 3 else "train"}))
    (folder / "captions.jsonl").write_text("\n".join(lines))
    words = ["a", "all", "square", "red", "green", "blue", *(f"w{n}" for n in range(200))]
    return WordVectors(words, np.random.default_rng(5).laplace(size=(len(words), 4)))


def test_training_on_the_cluster_gives_the_same_model(client, tmp_path):
    vectors = small_world(tmp_path)
    recipe = Recipe(mixture_components=2, n_components=2, reg_x=(0.01,), reg_y=(0.01,), whitening="pca")
    dataset = open_dataset(f"folder:{tmp_path}")
    here = train_model(dataset, vectors, recipe, tmp_path / "here")
    there = train_model(dataset, vectors, recipe, tmp_path / "there", client)
    assert same_bits(here.sentence_encoder.mixtures[0], there.sentence_encoder.mixtures[0])
    ours, theirs = (model.joint_space.projections.correlations for model in (here, there))
    np.testing.assert_allclose(theirs, ours, rtol=1e-4)
