"""`make errors` and `make power-losses` in short: a library loses nothing, and is not called damaged."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[4] / "tests"
WITH_TRACEBACK = f"""
import sys
sys.path.insert(0, {str(SCRIPTS)!r})
import errors

def list_carelessly(library, photos):
    try:
        library.folders()
    except ValueError as error:
        raise KeyError from error

errors.USES["list"] = list_carelessly
errors.main()
"""

with_failing_calls = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"),
    reason="a C compiler on Linux makes the disk that fails",
)


@pytest.mark.slow
@with_failing_calls
@pytest.mark.parametrize("use", ["update", "migrate"])
def test_each_system_call_may_fail(use):
    subprocess.run([sys.executable, SCRIPTS / "errors.py", use, "--every", "23"], check=True)


@pytest.mark.slow
@with_failing_calls
def test_a_traceback_is_found(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(WITH_TRACEBACK)
    done = subprocess.run([sys.executable, script, "list", "--every", "9"], capture_output=True, text=True)
    assert "traceback: KeyError" in done.stdout
    assert done.returncode == 1


@pytest.mark.slow
def test_the_power_may_be_lost_at_any_time():
    if not shutil.which("strace"):
        pytest.skip("strace records what a process asks of the disk")
    subprocess.run([sys.executable, SCRIPTS / "power_losses.py", "--losses", "40"], check=True)
