"""Changes a photo folder and updates the library without end, until it is killed: `python changing_writer.py
PHOTOS LIBRARY SEED`.
"""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from fishermix_photos import store, update
from fishermix_photos.library import PhotoLibrary
from tiny_model import NAMES, TinyModel, paint

photos, place, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
update.PHOTOS_PER_COMMIT, store.FEWEST_DEAD_TO_COMPACT, store.DAYS_DEAD = 3, 4, 0
rng = random.Random(seed)
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
