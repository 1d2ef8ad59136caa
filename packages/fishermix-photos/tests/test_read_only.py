"""A read-only installation without a writable home, as in many containers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import fishermix
import pytest

NOBODY = "65534"
PROGRAM = """
import sys
import numpy as np
from fishermix import FisherEncoder, HybridMixture

X = np.random.default_rng(0).normal(size=(6000, 2))  # too many for NumPy alone
mixture = HybridMixture(2, random_state=0).fit(X)
print(repr(mixture.score(X)), repr(float(FisherEncoder.from_fitted(mixture).transform([X]).sum())))
"""


@pytest.fixture
def read_only(tmp_path):
    """A copy of the package in which nobody may write."""
    source = Path(fishermix.__file__).parent
    package = tmp_path / "site" / "fishermix"
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("pretrained", "__pycache__"))
    folders = [tmp_path / "site", *filter(Path.is_dir, package.rglob("*")), package]
    for folder in folders:
        folder.chmod(0o555)
    yield tmp_path / "site"
    for folder in folders:
        folder.chmod(0o755)


def run_unprivileged(site, tmp_path, **variables):
    """Run PROGRAM as a user who may read everything and write nothing but `variables` name."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-B", str(program)]
    if os.geteuid() == 0:  # root may write into any folder: become a user who may not
        if not shutil.which("setpriv"):
            pytest.skip("root needs setpriv (util-linux) to become another user")
        capabilities = "-all,+dac_read_search"  # the interpreter may lie in a home of another user
        become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        command = [*become, f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", *command]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": str(site), **variables}
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=600)


@pytest.mark.slow
def test_a_read_only_installation_works_with_one_remark(read_only, tmp_path):
    done = run_unprivileged(read_only, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("FishermixWarning") == 1
    assert "Set NUMBA_CACHE_DIR to a writable folder" in done.stderr
    assert f"{tmp_path / 'program.py'}:7: FishermixWarning" in done.stderr
    assert not list(read_only.rglob("*.nbi"))

    cache = tmp_path / "cache"
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    cached = run_unprivileged(read_only, tmp_path, NUMBA_CACHE_DIR=str(cache))
    assert (cached.returncode, cached.stderr) == (0, "")
    assert cached.stdout == done.stdout
    assert list(cache.rglob("*.nbi"))
