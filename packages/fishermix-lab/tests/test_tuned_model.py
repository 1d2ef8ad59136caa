"""`fishermix networks tune`, from folders of captioned photos to a model, with the network in the package."""

from __future__ import annotations

import json

import numpy as np
import pytest
from refuses import refuses

pytest.importorskip("torch")
pytest.importorskip("onnx")

from fishermix.text.word_vectors import WordVectors
from fishermix_photos import ImageTextModel
from fishermix_photos.cli import load_commands
from fishermix_photos.model.image_encoder import ImageEncoder
from fishermix_photos.model.network import Network
from PIL import Image
from typer.testing import CliRunner

COLORS = {"red": (220, 20, 20), "green": (20, 160, 20), "blue": (20, 20, 220), "yellow": (240, 230, 20)}


@pytest.fixture
def photos(tmp_path):
    """Two folders of captioned pictures of one color each; some are to choose by."""
    random = np.random.default_rng(0)
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        lines = []
        for number in range(24):
            word = list(COLORS)[number % 4]
            pixels = np.clip(random.normal(COLORS[word], 20, (40, 40, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
            record = {"image": f"{number}.png", "captions": [f"a {word} wall", f"something {word}"]}
            lines.append(json.dumps(record | {"split": "val" if number > 19 else "train"}))
        (folder / "captions.jsonl").write_text("\n".join(lines))
    return tmp_path


def tune(photos, *more):
    classes = photos / "classes.txt"
    classes.write_text("\n".join(f"class {number}" for number in range(1000)))
    arguments = ["networks", "tune", photos / "network", "--out", photos / "model", "--steps", 3]
    arguments += ["--data", f"folder:{photos / 'one'}", "--data-only-train", f"folder:{photos / 'two'}"]
    arguments += ["--classes", classes, *more]
    return CliRunner().invoke(
        load_commands(), [str(argument) for argument in arguments], catch_exceptions=False
    )


@pytest.mark.slow
def test_a_tuned_model_finds_colors_with_its_own_network(photos):
    result = tune(photos)
    assert result.exit_code == 0, result.output
    model = ImageTextModel.load(photos / "model")
    assert model.image_encoder.encoders == [str(photos / "network")]
    pictures = [photos / "one" / f"{number}.png" for number in range(4)]
    tuned, before = model.image_encoder.transform(pictures), ImageEncoder("efficientnet-lite2:depths")
    assert np.linalg.norm(tuned - before.transform(pictures)) > 0.01 * np.linalg.norm(tuned)  # it has learned
    scores = model.similarity([f"a {word} wall" for word in COLORS], pictures)
    assert scores.argmax(axis=1).tolist() == [0, 1, 2, 3]
    hubness = model.joint_space.hubness  # its sentences are captions and phrases
    for phrase in ("red", "blue wall"):
        assert hubness.find_nearness(model.encode_text([phrase])[0]) > 0.99


@pytest.mark.slow
def test_a_tuned_model_can_have_other_words_and_another_size(photos):
    known = ImageTextModel.load().sentence_encoder.vectors
    kept = np.flatnonzero(np.isin(known.words, ["a", "wall", "something", *COLORS]))
    words = [known.words[row] for row in kept] + ["zyzzyva", "qoph"]
    vectors = np.vstack([known.vectors[kept], np.eye(2, known.vectors.shape[1])])
    WordVectors(words, vectors.astype(np.float32)).save(photos / "vectors")
    result = tune(
        photos, "--vectors", photos / "vectors", "--words", len(words) - 1, "--size", 196, "--cca", 0
    )
    assert result.exit_code == 0, result.output
    model = ImageTextModel.load(photos / "model")
    assert set(model.sentence_encoder.vectors.words) == set(words) - {"qoph"}
    assert Network.find(model.image_encoder.encoders[0]).size == 196
    assert model.image_encoder.transform([photos / "one" / "0.png"]).any()


def test_shares_are_given_once_per_set(photos):
    with refuses("wrong_parameter"):
        tune(photos, "--share", "0.5")
