"""A kind of folder that is small enough for the tests of saving."""

import numpy as np
from fishermix.saved import FolderKind, Number, Struct, save_folder


class Thing(Struct):
    value: Number = 0.0


THING = FolderKind("thing", 1, Thing)


def saved(folder, value=1.0, kind=THING):
    """Save a thing with one tensor."""
    save_folder(folder, kind, Thing(value), {"a": np.full((2, 3), value, np.float32)})
