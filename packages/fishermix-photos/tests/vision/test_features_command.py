import numpy as np
import pytest
from fishermix.errors import FishermixError
from fishermix_photos.cli import load_commands
from fishermix_photos.vision.encoder import ImageEncoder
from typer.testing import CliRunner


@pytest.fixture
def dataset(tmp_path, pictures):
    """Three photos, the second of them damaged, with captions."""
    folder = tmp_path / "set"
    folder.mkdir()
    lines = ["image,caption"]
    for i, content in enumerate([pictures[0], b"not a photograph", pictures[1]]):
        (folder / f"{i}.jpg").write_bytes(content)
        lines.append(f"{i}.jpg,photo number {i}")
    (folder / "captions.csv").write_text("\n".join(lines) + "\n")
    return folder


def run(*arguments: object):
    return CliRunner().invoke(load_commands(), ["features", *map(str, arguments)])


def test_rows_speed_and_failures_are_reported(tmp_path, dataset, tiny):
    out = tmp_path / "out"
    first = run(f"folder:{dataset}", "--encoder", tiny, "--view", "flip", "--out", out)
    assert first.exit_code == 0, first.output
    assert "3 images with 12 features each" in first.output
    assert "2 encoded" in first.output
    assert "images/s, 1 failed" in first.output
    assert "1.jpg: not an image" in first.output
    names = (out / "images.txt").read_text().split()
    features = dict(zip(names, np.load(out / "features.npy"), strict=True))
    wanted = ImageEncoder(tiny, view="flip").transform([dataset / "0.jpg", dataset / "2.jpg"])
    assert np.array_equal([features["0.jpg"], features["2.jpg"]], wanted)
    assert np.isnan(features["1.jpg"]).all()

    again = run(f"folder:{dataset}", "--encoder", tiny, "--view", "flip", "--out", out)
    assert "0 encoded" in again.output
    assert "1 failed" in again.output


def test_nothing_readable_is_a_mistake(tmp_path, dataset, tiny):
    for photo in dataset.glob("*.jpg"):
        photo.write_bytes(b"")
    result = run(f"folder:{dataset}", "--encoder", tiny, "--out", tmp_path / "out")
    assert isinstance(result.exception, FishermixError)
    assert "No image of" in str(result.exception)
