"""Where fishermix keeps its own data: one folder, named by FISHERMIX_HOME or by the platform."""

from __future__ import annotations

import os
from pathlib import Path

from fishermix.errors import FishermixError


def data_folder() -> Path:
    """The folder of photo indexes and added networks; `~` in FISHERMIX_HOME is the home folder."""
    if home := os.environ.get("FISHERMIX_HOME"):
        try:
            return Path(home).expanduser()
        except RuntimeError as error:
            raise FishermixError(f"FISHERMIX_HOME={home} names a user that does not exist.") from error
    from platformdirs import user_data_path  # a search in FISHERMIX_HOME does not wait for it

    return user_data_path("fishermix", appauthor=False)
