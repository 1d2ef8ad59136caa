import pytest
from tiny_model import NAMES, TinyModel, paint
from typer.testing import CliRunner

from fishermix.cli import load_commands
from fishermix.errors import FishermixError
from fishermix.model.model import ImageTextModel


@pytest.fixture
def photos(tmp_path):
    """A folder of seven photos, each of one colour, and a flag."""
    folder = tmp_path / "photos"
    for name in NAMES:
        paint(folder / f"{name}.png", name)
    paint(folder / "sub" / "flag.png", "red", "white", "blue")
    return folder


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Run a command with the tiny model in place of the shipped one; indexes go to a temporary place."""
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(ImageTextModel, "load", TinyModel.load)
    app = load_commands()

    def run(*arguments, fails=False):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if fails:
            assert isinstance(result.exception, FishermixError), result.output
            return str(result.exception)
        assert result.exit_code == 0, result.output or result.exception
        return result.stdout

    return run
