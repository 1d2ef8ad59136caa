"""Flickr8K and Flickr30K: one caption per line, `NAME.jpg#NUMBER<TAB>caption`."""

from __future__ import annotations

from pathlib import Path

from fishermix.datasets.dataset import Dataset, Protocol
from fishermix.datasets.parsing import Gatherer, find, read_lines
from fishermix.errors import FishermixError

FLICKR8K_SOURCE = (
    "Flickr8K (Hodosh, Young and Hockenmaier) consists of Flickr8k_text.zip and Flickr8k_Dataset.zip. The "
    "University of Illinois (search for 'Flickr8k dataset request form') and mirrors provide it for research."
)
FLICKR30K_SOURCE = (
    "Flickr30K (Young et al.) consists of flickr30k.tar.gz (captions) and flickr30k-images.tar. The "
    "University of Illinois (search for 'Flickr30k dataset request form') provides it for research."
)
NO_SUCH_PHOTO = "2258277193_586949ec62.jpg.1"  # has captions, but was never published


def read_flickr8k(folder: Path, train: str = "paper") -> Dataset:
    """8,091 images, 40,455 sentences, and official dev and test splits of 1,000 images each.

    `train="paper"` trains on the other 6,091, `train="official"` on the 6,000 of the official list.

    Parameters
    ----------
    folder : path
        The folder of the data set.
    train : "paper" or "official"
        For Flickr8K only: the 6,091 training photos of the paper or the 6,000 of the official list.
    """
    if train not in ("paper", "official"):
        raise FishermixError(
            f"train must be 'paper' (6,091 images) or 'official' (6,000 images), not {train!r}."
        )

    def find_text(name: str) -> Path:
        return find([folder / name, folder / "Flickr8k_text" / name], f"Flickr8K's {name}", FLICKR8K_SOURCE)

    captions = find_text("Flickr8k.token.txt")
    lists = {split: find_text(f"Flickr_8k.{split}Images.txt") for split in ("dev", "test")}
    if train == "official":
        lists["train"] = find_text("Flickr_8k.trainImages.txt")
    photos = find(
        [folder / name for name in ("Images", "Flicker8k_Dataset", "Flickr8k_Dataset")],
        "Flickr8K's folder of photos",
        FLICKR8K_SOURCE,
    )
    gatherer = _gather("flickr8k", captions, photos)
    ghosts = gatherer.captions.pop(NO_SUCH_PHOTO, [])
    if ghosts:
        gatherer.problems.append(
            f"Skipped {len(ghosts)} captions of {NO_SUCH_PHOTO}, a photo that was never published."
        )
    for split, path in lists.items():
        for where, line in read_lines(path):
            if line.strip() not in gatherer.captions:
                raise FishermixError(f"{where}: {line.strip()!r} has no captions in {captions}.")
            gatherer.add(line.strip(), [], where, split)
    if train == "paper":
        for name in gatherer.captions:
            gatherer.split.setdefault(name, "train")
    return gatherer.build_dataset(str(photos))


def read_flickr30k(folder: Path) -> Dataset:
    """31,783 images without official splits; 1,000 validation and 1,000 test images are drawn five times.

    Parameters
    ----------
    folder : path
        The folder of the data set.
    """
    captions = find([folder / "results_20130124.token"], "Flickr30K's caption file", FLICKR30K_SOURCE)
    photos = find(
        [folder / name for name in ("flickr30k-images", "flickr30k_images", "images")],
        "Flickr30K's folder of photos",
        FLICKR30K_SOURCE,
    )
    return _gather("flickr30k", captions, photos).build_dataset(
        str(photos), Protocol(dev=1000, test=1000, repeats=5)
    )


def _gather(name: str, captions: Path, photos: Path) -> Gatherer:
    gatherer = Gatherer(name, lambda image: [photos / image])
    for where, line in read_lines(captions):
        key, tab, caption = line.partition("\t")
        image, number_sign, number = key.rpartition("#")
        if not (tab and number_sign and number.strip().isdigit()):
            raise FishermixError(f"{where}: expected NAME.jpg#NUMBER<TAB>caption, found {line[:60]!r}.")
        gatherer.add(image, [caption], where)
    return gatherer
