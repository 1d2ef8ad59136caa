"""Nothing is executed from a folder of photos, and nothing leaves the machine: the real commands."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fishermix.onnx_session import TELEMETRY_FOLDER
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


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("command", ["index add", "search", "caption"])
def test_nothing_leaves_the_machine(photos, tmp_path, command):
    left_behind = tmp_path / ".cache" / TELEMETRY_FOLDER / "deviceid"
    left_behind.parent.mkdir(parents=True)
    left_behind.write_text("of an older version")
    arguments = {
        "index add": ["index", "add", str(photos)],
        "search": ["search", "a red square", str(photos)],
        "caption": ["caption", str(photos / "any.webp")],
    }[command]
    trace = tmp_path / "trace"
    run(
        "strace",
        "-f",
        "-qq",
        "-e",
        "trace=network",
        "-o",
        trace,
        COMMAND,
        *arguments,
        cwd=tmp_path,
        home=tmp_path,
    )
    foreign = [
        line
        for line in trace.read_text(errors="replace").splitlines()
        if re.search(r"\b(connect|sendto|sendmsg)\(.*AF_INET", line)
        and not re.search(r'"127\.0\.0\.1"|"::1"', line)
    ]
    assert not foreign
    assert not left_behind.exists()
    assert not list((tmp_path / ".cache").glob("Microsoft/**/*.db"))
