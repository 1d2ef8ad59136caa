"""Imports only go down: the contract in pyproject.toml holds, and a violation of it is noticed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("importlinter")
ROOT = Path(__file__).parent.parent
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"


def lint_imports(source: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", LINT],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_imports_only_go_down():
    done = lint_imports(ROOT / "src")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("rows/upward.py", "from fishermix.model import model\n"),
        ("retrieval/upward.py", "def find():\n    from fishermix.cli import app\n\n    return app\n"),
    ],
)
def test_an_import_that_goes_up_is_noticed(tmp_path, module, statement):
    ignored = shutil.ignore_patterns("__pycache__", "pretrained", "static")
    shutil.copytree(ROOT / "src" / "fishermix", tmp_path / "fishermix", ignore=ignored)
    (tmp_path / "fishermix" / module).write_text(statement)
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert f"fishermix.{module.removesuffix('.py').replace('/', '.')} ->" in done.stdout
