"""The commands on a model of seven colors: train, evaluate, caption."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fishermix.errors import FishermixError, install_command
from fishermix_lab.captions.recipe import CAPTION_RECIPES
from fishermix_photos.cli import load_commands
from fishermix_photos.model.captioner.captioner import Captioner
from fishermix_photos.model.captioner.consensus import Confidence
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.saved import SHIPPED
from tiny_model import NAMES, TinyImageEncoder, TinyModel, paint
from typer.testing import CliRunner

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow  # a captioner is trained


class Encoder(TinyImageEncoder):
    max_pixels_ = 10**6


class Model(TinyModel):
    def __init__(self, folder):
        self.image_encoder = Encoder()
        self.sentence_vectors = SimpleNamespace(transformer=None)
        saved = Path(folder) / "captioner"
        self.captioner = Captioner.load(saved) if saved.is_dir() else None

    def describe_points(self, points, **options):
        if self.captioner is None:
            raise FishermixError("this model has no captioner")
        return self.captioner.describe(points, encode_text=self.encode_text, **options)


@pytest.fixture
def run(monkeypatch):
    app = load_commands()
    monkeypatch.setattr(ImageTextModel, "load", Model)

    def command(*arguments, fails=False) -> str:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if fails:
            assert isinstance(result.exception, FishermixError), result.output
            return str(result.exception)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    return command


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    lines = ["image,caption,split"]
    for split, size in (("train", 40), ("dev", 36), ("test", 38)):
        for name in NAMES:
            paint(folder / f"{split}-{name}.png", name, size=(size, 32))
            lines += [
                f"{split}-{name}.png,{text},{split}" for text in (f"A {name} picture", f"It is {name}.")
            ]
    (folder / "captions.csv").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory) -> Path:
    """A model folder with a captioner, trained by the command."""
    folder = tmp_path_factory.mktemp("models") / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")  # the figures of a model name it by this file
    small = replace(
        CAPTION_RECIPES["default"],
        units=16,
        min_count=1,
        batch_size=4,
        epochs=25,
        learning_rate=0.03,
        patience=25,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CAPTION_RECIPES, "default", small)
        patch.setattr(ImageTextModel, "load", Model)
        arguments = ["captioner", "train", "--model", str(folder), "--data", f"folder:{data}"]
        result = CliRunner().invoke(load_commands(), arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return folder


def test_train_writes_the_captioner_and_its_history_and_clears_up(trained):
    work = trained.with_name("model.work")
    history = json.loads((work / "captioner.json").read_text())
    assert history[-1]["dev_loss"] < history[0]["dev_loss"]
    assert {"epoch", "train_loss", "dev_loss", "bleu4", "cider_d"} <= set(history[0])
    assert Captioner.load(trained / "captioner").model_key == TinyModel.key
    assert (work / "features").is_dir()
    assert not (work / "captioner").exists()


def test_caption_describes_photos(run, trained, data):
    red, blue = data / "test-red.png", data / "test-blue.png"
    assert "red" in run("caption", red, "--model", trained)
    lines = run("caption", red, blue, "--model", trained).splitlines()
    assert [line.split(": ")[0] for line in lines] == [str(red), str(blue)]
    assert "blue" in lines[1]
    found = json.loads(run("caption", red, "--model", trained, "--json"))
    assert found[0]["path"] == str(red)
    assert "red" in found[0]["sentence"]


def test_caption_goes_on_after_an_unreadable_photo(run, trained, data, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no photo")
    assert "1 of 2 photos" in run("caption", broken, data / "test-red.png", "--model", trained, fails=True)
    assert "does not exist" in run("caption", tmp_path / "absent.png", "--model", trained, fails=True)


@pytest.mark.parametrize("beam", [1, 3])
def test_evaluate_gives_the_measures_in_percent_and_the_originality(run, trained, data, tmp_path, beam):
    arguments = ["captioner", "evaluate", "--data", f"folder:{data}", "--model", trained]
    arguments += ["--set", f"beam={beam}"]
    printed = run(*arguments, "--json", tmp_path / "f.json")
    (figures,) = json.loads((tmp_path / "f.json").read_text())["rows"]
    assert {"bleu1", "bleu2", "bleu3", "bleu4", "rouge_l", "cider_d"} <= set(figures["scores"])
    assert 50 < figures["scores"]["bleu1"] <= 100
    assert figures["label"] == f"beam={beam}"
    assert f"test, 7 photos, beam {beam}" in printed
    assert figures["originality"]["true, all"] == {
        "sentences": 14,
        "new": 0.0,
        "distinct": 14,
        "words": 11,
        "length": 3.0,
    }
    assert "true, all" in printed


def test_training_calibrates_and_captions_do_not_depend_on_it(run, trained, data, tmp_path):
    assert Captioner.load(trained / "captioner").confidence is not None
    model = shutil.copytree(trained, tmp_path / "model")
    captioner = Captioner.load(model / "captioner")
    captioner.confidence = None
    captioner.save(model / "captioner")
    red = data / "test-red.png"
    assert json.loads(run("caption", red, "--model", model, "--json"))[0]["confidence"] is None
    assert run("caption", red, "--model", model) == run("caption", red, "--model", trained)


def test_fine_tuning_on_few_photos_keeps_the_confidence(run, trained, data, tmp_path, monkeypatch):
    model = shutil.copytree(trained, tmp_path / "model")
    captioner = Captioner.load(model / "captioner")
    captioner.confidence = Confidence(0.5, 1.0, 2.0, threshold=0.4)
    captioner.save(model / "captioner")
    small = replace(CAPTION_RECIPES["fine-tune"], units=captioner.weights.units, batch_size=4)
    monkeypatch.setitem(CAPTION_RECIPES, "fine-tune", small)
    tune = ("captioner", "train", "--model", model, "--recipe", "fine-tune", "--set", "epochs=1")
    run(*tune, "--data", f"folder:{data}")
    tuned = Captioner.load(model / "captioner")
    assert tuned.confidence == captioner.confidence
    assert not np.array_equal(tuned.weights.output_bias, captioner.weights.output_bias)


def test_mistakes_are_named(run, data, tmp_path):
    model = tmp_path / "m"
    model.mkdir()
    spec = f"folder:{data}"
    assert "no captioner" in run("captioner", "evaluate", "--data", spec, "--model", model, fails=True)
    assert "no captioner" in run("caption", data / "test-red.png", "--model", model, fails=True)
    assert "data set" in run("captioner", "train", "--model", model, fails=True)
    for words, problem in (((), "no captioner to start from"), (("--set", "min_count=2"), "keeps the words")):
        tune = ("captioner", "train", "--model", model, "--recipe", "fine-tune", "--data", spec)
        assert problem in run(*tune, *words, fails=True)
    assert "no recipe" in run(
        "captioner", "train", "--model", model, "--recipe", "x", "--data", spec, fails=True
    )


def test_training_without_torch_says_what_to_install(data, tmp_path):
    """In a process in which torch is not installed."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch')\n")
    command = [sys.executable, "-c", "from fishermix_photos.cli import main; main()", "captioner", "train"]
    done = subprocess.run(
        [*command, "--data", f"folder:{data}", "--model", str(SHIPPED), "--work", str(tmp_path / "work")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert install_command("fishermix-lab[torch]") in done.stderr


def test_ctrl_c_keeps_the_best_and_the_next_run_goes_on(run, data, tmp_path, monkeypatch):
    from fishermix_lab.captions.trainer import Training

    original = Training._step

    def interrupted(self, batch, step, total):
        if step == 2 * self.steps_per_epoch:
            raise KeyboardInterrupt
        original(self, batch, step, total)

    arguments = ["captioner", "train", "--model", tmp_path / "m", "--data", f"folder:{data}"]
    arguments += ["--set", "epochs=3", "--set", "min_count=1", "--work", tmp_path / "work"]
    history = tmp_path / "work" / "captioner.json"
    (tmp_path / "m").mkdir()
    monkeypatch.setattr(Training, "_step", interrupted)
    result = CliRunner().invoke(load_commands(), [str(argument) for argument in arguments])
    assert result.exit_code != 0
    assert Captioner.load(tmp_path / "m" / "captioner")
    assert len(json.loads(history.read_text())) == 2
    monkeypatch.setattr(Training, "_step", original)
    run(*arguments)
    assert len(json.loads(history.read_text())) == 3
