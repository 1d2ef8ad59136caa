"""What tests of several modules share."""

import subprocess
import sys

import pytest

HOLDER = """
import sys
from fishermix.saved import hold_folder
with hold_folder(sys.argv[1], "--work"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder():
    """A function that starts a process that holds a folder until the test ends."""
    started = []

    def hold(folder):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in started:
        process.communicate("" if process.poll() is None else None)
