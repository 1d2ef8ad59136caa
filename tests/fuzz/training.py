"""A tiny training of a captioner whose checkpoint is damaged. Apart from the others: it needs torch."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from fishermix_lab.captions.recipe import DEFAULT
from fishermix_lab.captions.trainer import Training
from fishermix_photos.model.captioner.vocabulary import CaptionSet

RECIPE = replace(DEFAULT, units=4, min_count=1, batch_size=2, epochs=1)
PHOTOS = CaptionSet(np.eye(3, dtype=np.float32), ["red photo", "photo", "red"], np.arange(3))


def encode_text(sentences):
    return np.ones((len(sentences), 3), np.float32)


def make_training(folder):
    """The folder becomes `state` of a checkpoint; `best` stays valid, next to it."""
    checkpoint = Path(folder).parent / "training"
    Training(PHOTOS, PHOTOS, encode_text, RECIPE, folder=checkpoint).run()
    state = checkpoint / "state"
    for path in state.iterdir():
        path.rename(folder / path.name)
    state.rmdir()
    state.symlink_to(folder, target_is_directory=True)


@cache
def make_other():
    """The same training, at its start."""
    return Training(PHOTOS, PHOTOS, encode_text, RECIPE)


def read_training(folder):
    state = Path(folder).parent / "training" / "state"
    if state.readlink() != folder:
        state.unlink()
        state.symlink_to(folder, target_is_directory=True)
    make_other()._restore(state.parent)
