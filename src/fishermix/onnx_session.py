"""The only place that imports onnxruntime: every network and sentence transformer takes it from here.

onnxruntime from 1.29 on reports its use to its makers: it writes a device id and a queue of events below the
user's cache folder, and looks up a host. Only an environment variable that is set before the import stops
all of it (`disable_telemetry_events` comes too late).
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType

TELEMETRY_FOLDER = Path("Microsoft", "DeveloperTools", ".onnxruntime")  # below the user's cache folder


@cache
def import_onnxruntime() -> ModuleType:
    """onnxruntime with its telemetry disabled. Removes the device id and the events it wrote before."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    with suppress(RuntimeError):  # no home folder
        cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        shutil.rmtree(cache_folder / TELEMETRY_FOLDER, ignore_errors=True)
    return onnxruntime
