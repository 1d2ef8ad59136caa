import pytest
from fishermix.errors import FishermixError
from fishermix.progress import is_shown, show_progress
from fishermix_photos.cli import load_commands
from fishermix_photos.model.calibration import Calibration
from fishermix_photos.model.model import ImageTextModel
from tiny_model import NAMES, TinyModel, TrainingScores, paint
from typer.testing import CliRunner


@pytest.fixture
def photos(tmp_path):
    """A folder of seven photos, each of one color, and a flag."""
    folder = tmp_path / "photos"
    for name in NAMES:
        paint(folder / f"{name}.png", name)
    paint(folder / "sub" / "flag.png", "red", "white", "blue")
    return folder


class Runner:
    """Runs a command and returns what it prints, or the message of its mistake, or the mistake itself if
    `fails` is its class; `remarks` collects the lines of all commands on standard error.
    """

    def __init__(self):
        self.app = load_commands()
        self.remarks = []

    def __call__(self, *arguments, fails=False):
        result = CliRunner().invoke(self.app, [str(argument) for argument in arguments])
        lines = result.stderr.splitlines()
        self.remarks += [line.removeprefix("fishermix: ") for line in lines if line.startswith("fishermix: ")]
        if fails:
            kind = FishermixError if fails is True else fails
            assert isinstance(result.exception, kind), (result.exception, result.output)
            return str(result.exception) if fails is True else result.exception
        assert result.exit_code == 0, result.output or result.exception
        return result.stdout


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Run a command with the tiny model in place of the shipped one and a library in a temporary place."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("FISHERMIX_HOME", str(home))
    monkeypatch.setattr(ImageTextModel, "load", TinyModel.load)
    was_shown = is_shown()
    show_progress()
    yield Runner()
    show_progress(was_shown)


class CalibratedModel(TinyModel):
    """Knows what a score means: 0.7 and 0.5 have probabilities of about 0.67 and 0.29."""

    calibration = Calibration(
        model_key="tiny", intercept=-4.9, score=8, deviations=0.001, log_photos=0, log_words=0
    )
    hubness = TrainingScores(0, 0.4, 20)


@pytest.fixture
def calibrated(tiny, monkeypatch):
    """As `tiny`, with a model that gives probabilities."""
    monkeypatch.setattr(ImageTextModel, "load", CalibratedModel.load)
    return tiny


@pytest.fixture
def remarks(tiny):
    return tiny.remarks
