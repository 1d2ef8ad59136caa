"""What the examples of the documents and docstrings find in their current folder."""

import shutil

import numpy as np
import pytest
from fishermix import WordVectors
from fishermix_photos.model.saved import SHIPPED
from PIL import Image


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """The current folder has the photos, data sets and word vectors that the pages name."""
    rng = np.random.default_rng(0)
    words = [f"{start}{end}" for start in ("bim", "dog", "gan", "sno", "tor", "vel") for end in "abcdefgh"]
    WordVectors(words, rng.normal(size=(len(words), 6)).astype(np.float32)).save(tmp_path / ".cache/word2vec")
    names = [f"{number}.jpg" for number in range(36)]
    for folder in ("DIR/Images", "data/flickr8k/Images", "holiday", "home/Pictures"):
        (tmp_path / folder).mkdir(parents=True)
        for name in names:
            pixels = rng.integers(0, 255, (9, 9, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((80, 60)).save(tmp_path / folder / name)
    for name in ("photo.jpg", "beach.jpg", "dog.png"):
        shutil.copy(tmp_path / "holiday/1.jpg", tmp_path / name)
    shutil.copytree(SHIPPED / "captioner", tmp_path / "captioner")
    captions = [(name, " ".join(rng.choice(words, 5))) for name in names for _ in range(5)]
    for folder in ("DIR", "data/flickr8k"):
        lines = [f"{name}#{number % 5}\t{caption}\n" for number, (name, caption) in enumerate(captions)]
        (tmp_path / folder / "Flickr8k.token.txt").write_text("".join(lines))
        for split, part in {"train": names[:24], "dev": names[24:30], "test": names[30:]}.items():
            (tmp_path / folder / f"Flickr_8k.{split}Images.txt").write_text("\n".join(part))
    lines = [f"{name},{caption},train\n" for name, caption in captions]
    (tmp_path / "holiday/captions.csv").write_text("image,caption,split\n" + "".join(lines))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "data folder"))
