"""What a kind of file is to the fuzzer: how to make a valid seed, how to damage it, and how to read it."""

import hashlib
import json
import zlib
from dataclasses import dataclass
from fnmatch import fnmatch

from tests.fuzz.mutate import mutate_bytes, mutate_json

PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Kind:
    """make(folder) writes a seed; read(folder) reads and uses it; `files` are the names to damage.

    restores_all : reading changes files, so all are written again for each input
    may_crash : the reader is a native library, so each input is kept on disk until it was read
    """

    make: object
    read: object
    files: tuple[str, ...]
    restores_all: bool = False
    may_crash: bool = False

    def mutate(self, seed, rng):
        """Damage one file of a seed (name -> content); returns its name, and what it contains now."""
        pattern = rng.choice(self.files)
        name = next(name for name in seed if fnmatch(name, pattern))
        data = seed[name]
        changed = (mutate_json if name.endswith(".json") else mutate_bytes)(data, rng)
        if name.startswith("tensors-") and rng.random() < 0.5 and len(data) > 8:
            changed = _mutate_header(data, rng)
        if data.startswith(PNG) and rng.random() < 0.8:
            changed = _correct_png(changed)
        return name, changed

    def place(self, seed, name, data):
        """The files to write. A damaged tensor file gets its hash in config.json: a hostile one has it."""
        placed = {name: data}
        if name.startswith("tensors-"):
            config = json.loads(seed["config.json"])
            config["sha256"] = hashlib.sha256(data).hexdigest()
            placed["config.json"] = json.dumps(config).encode()
        return placed


def _mutate_header(data, rng):
    size = int.from_bytes(data[:8], "little")
    header = mutate_json(data[8 : 8 + size], rng)
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def _correct_png(data):
    """Give every chunk its right checksum: a hostile file has one too."""
    parts, at = [data[:8]], 8
    while at < len(data):
        end = at + 8 + int.from_bytes(data[at : at + 4])
        parts += [data[at:end], zlib.crc32(data[at + 4 : end]).to_bytes(4)]
        at = end + 4
    return b"".join(parts)
