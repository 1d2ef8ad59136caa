"""Open a data set by the name `KIND:PATH`, as on every command line."""

from __future__ import annotations

from pathlib import Path

from fishermix.datasets.captions_file import read_folder
from fishermix.datasets.coco import read_coco
from fishermix.datasets.dataset import Dataset
from fishermix.datasets.flickr import read_flickr8k, read_flickr30k
from fishermix.datasets.karpathy import read_karpathy
from fishermix.datasets.pascal1k import read_pascal1k
from fishermix.errors import FishermixError

READERS = {
    "flickr30k": read_flickr30k,
    "pascal1k": read_pascal1k,
    "coco": read_coco,
    "folder": read_folder,
}
FORMS = "flickr8k:DIR, flickr30k:DIR, pascal1k:DIR, coco:DIR, karpathy:FILE.json:IMAGES_DIR or folder:DIR"


def open_dataset(spec: str, train: str = "paper") -> Dataset:
    """Read the data set `KIND:PATH`.

    `train` concerns Flickr8K only: "paper" trains on 6,091 images, "official" on 6,000.

    Parameters
    ----------
    spec : str
        `flickr8k:DIR`, `flickr30k:DIR`, `pascal1k:DIR`, `coco:DIR`, `karpathy:FILE.json:IMAGES_DIR` or
        `folder:DIR`.
    train : "paper" or "official"
        For Flickr8K only: the 6,091 training photos of the paper or the 6,000 of the official list.

    Examples
    --------
    >>> open_dataset("flickr8k:no/such/folder")
    Traceback (most recent call last):
    fishermix.errors.FishermixError: There is no folder no/such/folder (data set flickr8k:no/such/folder).
    """
    kind, _, path = spec.partition(":")
    if kind not in ("flickr8k", "karpathy", *READERS) or not path:
        raise FishermixError(f"{spec!r} is not a data set. Write {FORMS}.")
    if kind == "karpathy":
        stem, json_colon, photos = path.rpartition(".json:")
        if not (stem and json_colon and photos):
            raise FishermixError(
                f"{spec!r} does not name a folder of photos. Write karpathy:FILE.json:IMAGES_DIR."
            )
        return read_karpathy(Path(f"{stem}.json").expanduser(), Path(photos).expanduser())
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise FishermixError(f"There is no folder {folder} (data set {spec}).")
    return read_flickr8k(folder, train) if kind == "flickr8k" else READERS[kind](folder)
