"""Builds `failing_calls.c`, a disk whose system calls fail: for processes with this file in LD_PRELOAD."""

import shutil
import subprocess
import sys
from pathlib import Path


def build_failing_calls(folder):
    """The library in a folder, or None where it cannot be built: it needs a C compiler on Linux."""
    compiler, library = shutil.which("cc"), Path(folder) / "failing_calls.so"
    if sys.platform != "linux" or not compiler:
        return None
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
