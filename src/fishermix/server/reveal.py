"""Show a photo in the file manager of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from fishermix.errors import FishermixError


def can_reveal() -> bool:
    """Whether there is a file manager, and a screen to show it on."""
    if sys.platform in ("darwin", "win32"):
        return True
    has_screen = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return has_screen and shutil.which("xdg-open") is not None


def reveal(file: Path) -> None:
    """Open the folder of a file, with the file selected where the system can."""
    if sys.platform == "darwin":
        command = ["open", "-R", str(file)]
    elif sys.platform == "win32":
        command = ["explorer", f"/select,{file}"]
    else:
        command = ["xdg-open", str(file.parent)]
    try:
        quiet = subprocess.DEVNULL
        subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    except OSError as error:
        raise FishermixError(f"The file manager cannot be started ({error.strerror}).") from error
