"""Changes a photo folder and its index without end, until it is killed: `python changing_writer.py PHOTOS
INDEX SEED`.
"""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from tiny_model import NAMES, TinyModel, paint

from fishermix.retrieval import sqlite_write, update
from fishermix.retrieval.index import PhotoIndex

photos, place, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
update.BATCH, sqlite_write.FEWEST_DEAD_TO_COMPACT = 3, 4
rng = random.Random(seed)
model = TinyModel()
print("ready", flush=True)
while True:
    files = sorted(photos.rglob("*.png"))
    for _ in range(8):
        paint(photos / f"{rng.randrange(60)}.png", *rng.choices(NAMES, k=3), size=(rng.randrange(8, 40), 8))
    for file in rng.sample(files, min(5, len(files))):
        if not file.exists():
            continue
        match rng.randrange(3):
            case 0:
                file.unlink()
            case 1:
                file.rename(photos / f"moved-{rng.randrange(60)}.png")
            case 2:
                (photos / f"copy-{rng.randrange(60)}.png").write_bytes(file.read_bytes())
    if rng.random() < 0.1:
        model.key = f"model-{rng.random()}"
    with PhotoIndex(photos, model, place) as index:
        index.update()
