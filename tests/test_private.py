"""Nothing is executed from a folder of photos, and nothing leaves the machine: the real commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

COMMAND = str(Path(sys.executable).with_name("fishermix"))


def run(*arguments, cwd, home):
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "GITHUB_ACTIONS", "XDG_CACHE_HOME")}
    environment |= {"HOME": str(home), "FISHERMIX_HOME": str(home / "fishermix")}
    result = subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    Image.new("RGB", (64, 64), "red").save(folder / "any.webp")  # of unknown cost: decoded by a worker
    return folder


def test_a_folder_of_photos_runs_no_code(photos, tmp_path):
    for name in ("json", "struct", "numpy", "PIL", "fishermix", "sitecustomize"):
        (photos / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')")
    assert "any.webp" in run(COMMAND, "search", "coffee", cwd=photos, home=tmp_path)
    assert not (tmp_path / "ran").exists()
