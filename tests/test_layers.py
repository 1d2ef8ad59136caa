"""Imports only go down: the contracts in pyproject.toml hold, and a violation of one is noticed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("importlinter")
ROOT = Path(__file__).parent.parent
SOURCES = {source.name: source for source in ROOT.glob("packages/*/src/*") if source.is_dir()}
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"


def lint_imports(*folders: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", LINT],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
        check=False,
    )


def test_imports_only_go_down():
    done = lint_imports(*(source.parent for source in SOURCES.values()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("fishermix/mixture/upward.py", "from fishermix.cca import RegularizedCCA\n"),
        ("fishermix/upward.py", "from fishermix_photos.model.model import ImageTextModel\n"),
        (
            "fishermix_photos/photos/upward.py",
            "def f():\n    from fishermix_photos.cli import app\n\n    return app\n",
        ),
    ],
)
def test_an_import_that_goes_up_is_noticed(tmp_path, module, statement):
    ignored = shutil.ignore_patterns("__pycache__", "pretrained", "static")
    for name, source in SOURCES.items():
        shutil.copytree(source, tmp_path / name, ignore=ignored)
    (tmp_path / module).write_text(statement)
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert f"{module.removesuffix('.py').replace('/', '.')} ->" in done.stdout
