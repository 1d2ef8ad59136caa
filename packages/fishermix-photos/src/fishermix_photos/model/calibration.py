"""`calibration.json` of a model: the parameters that turn its scores into probabilities.

`fishermix_photos.search.calibration` has the formula, the tool that fits them is `tools/calibrate.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from fishermix.saved import Number, Struct, Text, load_json, write_atomically
from msgspec import structs

CALIBRATION = "calibration.json"


class Calibration(Struct, kw_only=True):
    """The parameters of the probabilities, and the key of the model whose scores they are for.

    nothing : if the best photo has a lower probability, not one photo is right
    understood : a query whose nearest training sentence has a lower cosine is not understood
    minus : of version 0.3, which is not used any more: what is subtracted lowers the score itself
    """

    model_key: Text
    intercept: Number
    score: Number
    deviations: Number
    log_photos: Number
    log_words: Number
    hubness: Number = 0.0
    color: Number = 0.0
    number: Number = 0.0
    place: Number = 0.0
    minus: Number = 0.0
    nothing: Number = 0.2
    understood: Number = -1.0

    def save(self, folder: Path) -> None:
        """Write the file into a model's folder."""
        text = json.dumps(structs.asdict(self), indent=1) + "\n"
        write_atomically(folder / CALIBRATION, text.encode())

    @classmethod
    def load(cls, folder: Path, model_key: str) -> Calibration | None:
        """The calibration in a model's folder; None if it has none, or one for another model."""
        path = folder / CALIBRATION
        if not path.is_file():
            return None
        found = load_json(path, cls)
        return found if found.model_key == model_key else None
