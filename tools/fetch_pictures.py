"""Fetch free photos for the picture of the README: python tools/fetch_pictures.py FOLDER

They are the photos of monuments, windmills, fish and animals in Debian's package gcompris-qt-data that its
READMEs call public domain or CC0, about a hundred, and those of scikit-image and scikit-learn that `fishermix
demo` shows. They are called IMG_0001.webp and so on, so that no search finds them by their names.
FOLDER/CREDITS.md names the author and the source of each. Needs `apt-get` and `dpkg-deb`.
"""

import re
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from fishermix_photos.cli.demo import copy_packaged_photos

PACKAGE = "gcompris-qt-data"
ACTIVITIES = ("categorization", "explore_farm_animals", "explore_world_animals")
FOLDERS = ("fishes", "monuments", "renewable", "animals")
FREE = ("Public Domain", "CC0-1.0")


def list_resources(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The path and the content of each file in a Qt resource."""
    version, tree, contents, names = struct.unpack_from(">4I", data, 4)
    node_size = 22 if version >= 2 else 14

    def walk(node: int, parents: str) -> Iterator[tuple[str, bytes]]:
        name_at, flags, first, second = struct.unpack_from(">IHII", data, tree + node * node_size)
        (length,) = struct.unpack_from(">H", data, names + name_at)
        name = data[names + name_at + 6 :][: 2 * length].decode("utf-16-be") if node else ""
        if flags & 2:  # a folder: the number of its files, and the first of them
            for child in range(second, second + first):
                yield from walk(child, f"{parents}{name}/" if node else "")
        else:
            (start,) = struct.unpack_from(">I", data, tree + node * node_size + 10)
            (size,) = struct.unpack_from(">I", data, contents + start)
            content = data[contents + start + 4 :][:size]
            yield parents + name, zlib.decompress(content[4:]) if flags & 1 else content

    yield from walk(0, "")


def list_credits(readme: str) -> Iterator[tuple[str, str, str, str]]:
    """The name of each free photo with its author, license and source, from the README next to it."""
    for paragraph in readme.split("\n\n"):
        fields = dict(re.findall(r"(?m)^(Copyright|Source|License): (.*)$", paragraph))
        if fields.get("License") in FREE:
            for name in paragraph.partition("Files:\n")[2].split():
                yield name, fields["Copyright"], fields["License"], fields.get("Source", "")


def fetch_free_photos(target: Path) -> None:
    credits = []
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["apt-get", "download", PACKAGE], cwd=scratch, check=True)
        [package] = Path(scratch).glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", package, scratch], check=True)
        for activity in ACTIVITIES:
            resource = Path(scratch, "usr/share/gcompris-qt/rcc", f"{activity}.rcc").read_bytes()
            contents = dict(list_resources(resource))
            for readme in (Path(path) for path in contents if path.endswith("README")):
                if readme.parent.name not in FOLDERS:
                    continue
                for name, author, license_name, source in list_credits(contents[str(readme)].decode()):
                    if name.endswith(".webp"):
                        number = f"IMG_{len(credits) + 1:04}.webp"
                        (target / number).write_bytes(contents[str(readme.parent / name)])
                        credits.append(f"| {number} | {author} | {license_name} | {source} |")
    lines = ["| photo | author | license | source |", "|---|---|---|---|", *credits]
    (target / "CREDITS.md").write_text("\n".join(lines) + "\n", "utf8")


if __name__ == "__main__":
    folder = copy_packaged_photos(Path(sys.argv[1]))
    fetch_free_photos(folder)
