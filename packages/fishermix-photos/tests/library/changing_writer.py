"""Changes a photo folder and updates the library without end, until it is killed: `python changing_writer.py
PHOTOS LIBRARY SEED [CALL]`. With CALL, and `failing_calls.c` in LD_PRELOAD, it is killed at its system call
of this number on a file of the library.
"""

import ctypes
import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from fishermix_photos.index import update, writer
from fishermix_photos.library import PhotoLibrary
from tiny_model import NAMES, TinyModel, paint

photos, place, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
update.PHOTOS_PER_COMMIT, writer.FEWEST_TO_COMPACT, writer.DAYS_ORPHANED = 3, 4, 0
rng = random.Random(seed)
if len(sys.argv) > 4:
    call = int(sys.argv[4])
    ctypes.CDLL(None).fail_calls(os.fsencode(place), 63, call, call, -1)
print("ready", flush=True)
with PhotoLibrary(place, TinyModel()) as library:
    while True:
        files = sorted(photos.rglob("*.png"))
        for _ in range(8):
            colors = rng.choices(NAMES, k=3)
            paint(photos / f"{rng.randrange(60)}.png", *colors, size=(rng.randrange(8, 40), 8))
        for file in rng.sample(files, min(5, len(files))):
            if not file.exists():
                continue
            match rng.randrange(4):
                case 0:
                    file.unlink()
                case 1:
                    file.rename(photos / f"moved-{rng.randrange(60)}.png")
                case 2:
                    (photos / f"copy-{rng.randrange(60)}.png").write_bytes(file.read_bytes())
                case 3:
                    (photos / "sub").mkdir(exist_ok=True)
                    file.rename(photos / "sub" / file.name)
        if rng.random() < 0.1 and library.covering(photos) == photos:
            library.remove(photos)
        library.update([photos])
