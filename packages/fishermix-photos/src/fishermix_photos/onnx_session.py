"""The only place that imports onnxruntime: every network and sentence transformer is opened here.

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
from typing import Any

ERRORS_ONLY = 3  # onnxruntime's log level: its warnings about graphs are of no use here
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


def open_session(graph: str | os.PathLike | bytes, threads: int = 1) -> Any:
    """An `InferenceSession` of a file, or of its bytes, on the CPU."""
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = ERRORS_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"], enable_fallback=0)
