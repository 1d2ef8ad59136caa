"""A finished stage is used again if, and only if, nothing that it computes from has changed."""

import json
import os
import shutil

import numpy as np
import pytest
from fishermix import Mixture, WordVectors
from fishermix.text.whitening import Whitening
from fishermix_lab import reproduce, stages
from fishermix_lab.datasets.readers import open_dataset
from fishermix_lab.recipe import Recipe
from fishermix_lab.reproduce import Experiment
from fishermix_photos.model import image_vectors
from fishermix_photos.model.transformer import DEFAULT_TRANSFORMER, SentenceTransformer
from PIL import Image

pytest.importorskip("onnx")

from tiny_network import write_tiny_network

WORDS = [f"word{number}" for number in range(80)]
RECIPE = Recipe(mixture_components=3, n_components=6, reg_x=(0.1,), reg_y=(0.1,))


class World:
    """Photos of noise with captions, word vectors, a network and a transformer; all of it is on disk."""

    def __init__(self, folder):
        self.folder, self.recipe = folder, RECIPE
        rng = np.random.default_rng(0)
        (folder / "photos" / "images").mkdir(parents=True)
        lines = []
        for number in range(40):
            self.draw_photo(number, seed=number)
            captions = [" ".join(rng.choice(WORDS, 4)) for _ in range(2)]
            split = ("train", "train", "val", "test")[number % 4]
            lines.append(json.dumps({"image": f"{number}.bmp", "captions": captions, "split": split}))
        (folder / "photos" / "captions.jsonl").write_text("\n".join(lines))
        write_tiny_network(folder / "network")
        self.draw_vectors(seed=0)

    def add_transformer(self):
        shipped, folder = SentenceTransformer.find(DEFAULT_TRANSFORMER).folder, self.folder / "transformer"
        folder.mkdir()
        (folder / "model.onnx").symlink_to(shipped / "model.onnx")
        shutil.copy(shipped / "tokenizer.json", folder)
        self.recipe = RECIPE.with_(transformer=str(folder))

    def draw_photo(self, number, seed):
        """A photo whose file has the same size and time for every seed."""
        path = self.folder / "photos" / "images" / f"{number}.bmp"
        pixels = np.random.default_rng(seed).integers(256, size=(32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
        os.utime(path, ns=(10**18, 10**18))

    def draw_vectors(self, seed):
        rng = np.random.default_rng(seed)
        self.vectors = WordVectors(WORDS, rng.laplace(size=(80, 6)).astype(np.float32))

    def measure(self, work):
        encoders = (str(self.folder / "network" / "tiny.onnx"),)
        recipe = self.recipe.with_(encoders=encoders)
        data = open_dataset(f"folder:{self.folder / 'photos'}")
        (result,) = Experiment(data, self.vectors).run([recipe], work)
        return result


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "world")


def change_weights(world):
    write_tiny_network(world.folder / "network", seed=1)


def change_mean(world):
    write_tiny_network(world.folder / "network", mean=[0, 0, 0])


def change_vectors(world):
    world.draw_vectors(seed=1)


def change_photos(world):
    for number in range(40):
        world.draw_photo(number, seed=100 + number)


def change_captions(world):
    file = world.folder / "photos" / "captions.jsonl"
    file.write_text(file.read_text().replace("word1", "word2"))


def change_tokenizer(world):
    file = world.folder / "transformer" / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["normalizer"] = None
    tokenizer["pre_tokenizer"] = None  # a sentence is one unknown token
    file.write_text(json.dumps(tokenizer))


def change_parameter(world):
    world.recipe = RECIPE.with_(mixture_components=2)


def change_seed(world):
    world.recipe = RECIPE.with_(seed=1)


CHANGES = [
    change_weights,
    change_mean,
    change_vectors,
    change_photos,
    change_captions,
    change_tokenizer,
    change_parameter,
    change_seed,
]


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_input_gives_the_figures_of_an_empty_work_folder(change, world, tmp_path):
    if change is change_tokenizer:
        world.add_transformer()
    before = world.measure(tmp_path / "work")
    change(world)
    after = world.measure(tmp_path / "work")
    assert after.inputs != before.inputs
    assert after.figures != before.figures
    assert after.figures == world.measure(tmp_path / "empty").figures


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["image features", "sentence transformer", "whitening", "mixture", "ranks"])
def test_a_changed_version_runs_the_stage_again(stage, world, tmp_path, monkeypatch):
    if stage == "sentence transformer":
        world.add_transformer()
    before = world.measure(tmp_path)
    monkeypatch.setitem(stages.VERSIONS, stage, stages.VERSIONS[stage] + 1)
    after = world.measure(tmp_path)
    assert after.stages == before.stages | {stage: before.stages[stage] + 1}
    assert (after.inputs, after.figures) == (before.inputs, before.figures)
    assert len(list(tmp_path.glob("result-*.json"))) == 2
    stage_folders = {name: len(list(tmp_path.glob(f"{name}-*/"))) for name in ("whitening", "mixture")}
    assert stage_folders == {"whitening": 1 + (stage == "whitening"), "mixture": 1 + (stage in stage_folders)}


def forbid(monkeypatch, *methods):
    def fail(*arguments, **options):
        raise AssertionError("computed again")

    for owner, name in methods:
        monkeypatch.setattr(owner, name, fail)


def test_nothing_is_computed_again_if_nothing_changed(world, tmp_path, monkeypatch):
    before = world.measure(tmp_path)
    forbid(monkeypatch, (reproduce, "train_model"))
    assert world.measure(tmp_path) == before


def test_another_joint_space_uses_the_stages_before_it(world, tmp_path, monkeypatch):
    world.measure(tmp_path)
    forbid(monkeypatch, (Whitening, "fit"), (Mixture, "fit"), (image_vectors, "cut_crops"))
    world.recipe = RECIPE.with_(n_components=5)
    world.measure(tmp_path)
