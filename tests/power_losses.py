"""Simulate losses of power while a photo library changes: python tests/power_losses.py [--losses N]

A process changes a library, and strace records what it asks of the disk. A loss of power after any of these
calls leaves what was synced, and of the rest whatever the disk happened to write: some of the writes, perhaps
torn between sectors, and some of the new, renamed and deleted names. This is less than any file system keeps.
Each time, the library must be sound, and must have all that was acknowledged before.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from fishermix_photos.disk import create_private_file
from fishermix_photos.index import writer
from fishermix_photos.index.scan import Stamp
from fishermix_photos.index.values import Entry
from fishermix_photos.index.writer import LocalIndex

SECTOR = 512
CALLS = "openat,write,pwrite64,fsync,fdatasync,ftruncate,rename,unlink,unlinkat,lseek"
CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
QUOTED = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
DESCRIPTOR = re.compile(r"^(\d+)<((?:\\x[0-9a-f]{2})*)>")


def list_changes(index):
    """What the process does, one after the other; each is acknowledged when it returns."""

    def entry(path, content):
        vector = np.random.default_rng(content).normal(size=64).astype(np.float32)
        return Entry(path, Stamp(1, 2), bytes([content]) * 32, vector)

    writer.FEWEST_TO_COMPACT, writer.DAYS_ORPHANED = 1, -1
    yield lambda: index.adopt("model", 64)
    yield lambda: index.add_folder("/a")
    yield lambda: index.add_folder("/b")
    # As a writer that is killed leaves it: its name may not be on the disk yet.
    yield lambda: create_private_file(index._embeddings.path(index.state().generation))
    for turn in range(4):
        first = 10 * turn
        added = [entry(f"/a/{n}", n) for n in range(first, first + 6)]
        yield lambda added=added: index.write("/a", added)
        same = [entry(f"/b/{n}", n) for n in range(first + 3, first + 8)]
        yield lambda same=same, first=first: index.write("/b", same, [f"/b/{first - 6}"])
        yield lambda first=first: index.write("/a", [], [f"/a/{first}", f"/a/{first + 1}"])
        yield index.compact
    yield lambda: index.remove_folder("/b")
    yield lambda: index.write("/a", [entry("/a/last", 99)])


def change(folder):
    """Do all changes, and acknowledge each with a line."""
    index = LocalIndex(folder)
    for run in list_changes(index):
        run()
        os.write(1, b"done\n")
    index.close()


def list_states(folder):
    """The photos after each number of changes."""
    index, states = LocalIndex(folder), [set()]
    for run in list_changes(index):
        run()
        states.append({photo.path for photo in index.photos()})
    index.close()
    return states


def decode(text):
    return bytes.fromhex(text.replace("\\x", ""))


class Disk:
    """What is on a disk, and what it was asked to write and has not synced yet."""

    def __init__(self, folder):
        self.folder = os.fsencode(folder)
        self.contents, self.writes = [], []  # by the number of a file
        self.names, self.synced_names = {}, {}  # the file of each name, now and on the disk
        self.changed_names = []  # since the folder was synced: the name and its file, or None
        self.files, self.positions, self.acknowledged = {}, {}, 0  # by descriptor

    def run(self, line):
        """Follow one call. False if it has changed nothing here."""
        found = CALL.match(line)
        if found is None or int(found[3]) < 0:
            return False
        name, arguments, result = found[1], found[2], int(found[3])
        quoted = [decode(text) for text in QUOTED.findall(arguments)]
        if name == "openat":
            return self._open(quoted[0], result, arguments)
        if name in ("rename", "unlink", "unlinkat"):
            return self._rename(*quoted)
        descriptor, place = DESCRIPTOR.match(arguments).groups()
        if name == "write" and descriptor == "1":
            self.acknowledged += 1
            return False
        is_inside = decode(place).startswith(self.folder)
        if is_inside and name in ("fsync", "fdatasync") and decode(place) == self.folder:
            self.synced_names, self.changed_names = dict(self.names), []
            return True
        if not is_inside or descriptor not in self.files:
            return False
        file, numbers = self.files[descriptor], arguments.rpartition('"')[2].split(",")
        if name == "lseek":
            self.positions[descriptor] = result
        elif name == "write":
            self.writes[file].append((self.positions[descriptor], quoted[0]))
            self.positions[descriptor] += result
        elif name == "pwrite64":
            self.writes[file].append((int(numbers[2]), quoted[0]))
        elif name == "ftruncate":
            self.writes[file].append((int(arguments.split(",")[1]), None))
        else:
            for written in self.writes[file]:
                self._write(self.contents[file], *written)
            self.writes[file] = []
        return name != "lseek"

    def _open(self, path, descriptor, arguments):
        self.files.pop(str(descriptor), None)
        if os.path.dirname(path) != self.folder:
            return False
        is_new = path not in self.names
        if is_new:
            self.names[path] = len(self.contents)
            self.changed_names.append((path, len(self.contents)))
            self.contents.append(bytearray())
            self.writes.append([])
        if "O_TRUNC" in arguments and not is_new:
            self.writes[self.names[path]].append((0, None))
        self.files[str(descriptor)], self.positions[str(descriptor)] = self.names[path], 0
        return is_new

    def _rename(self, path, target=None):
        if path not in self.names:
            return False
        file = self.names.pop(path)
        self.changed_names.append((path, None))
        if target is not None:
            self.names[target] = file
            self.changed_names[-1:] = [(target, file), (path, None)]
        return True

    @staticmethod
    def _write(content, offset, data):
        end = offset + len(data or b"")
        if data is None:
            del content[offset:]
        content.extend(bytes(max(0, end - len(content))))
        content[offset:end] = data or b""

    def lose_power(self, rng, folder):
        """Leave in a folder what survives."""
        names = dict(self.synced_names)
        for path, file in self.changed_names:
            if rng.random() < 0.5:
                names[path] = file
        for path, file in names.items():
            if file is None:
                continue
            content = bytearray(self.contents[file])
            share = rng.choice([0, 0.5, 1])
            for offset, data in self.writes[file]:
                if rng.random() < share:
                    whole = data is None or rng.random() < 0.7
                    self._write(
                        content, offset, data if whole else data[: rng.randrange(0, len(data) + 1, SECTOR)]
                    )
            (folder / os.fsdecode(os.path.basename(path))).write_bytes(content)


def record(folder, log):
    """The calls of a process that makes all changes."""
    trace = ["strace", "-f", "-qq", "-y", "-xx", "-s", "16777216", "-e", f"trace={CALLS}", "-o", log]
    command = [*trace, sys.executable, __file__, "--change", folder]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return log.read_text("ascii").splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--losses", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--change", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.change:
        change(given.change)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "library")
        folder.mkdir()
        states = list_states(Path(scratch, "undisturbed"))
        lines = record(folder, Path(scratch, "log"))
        disk = Disk(folder)
        moments = sum(disk.run(line) for line in lines)
        assert disk.acknowledged == len(states) - 1, "not all changes were made"
        rng, disk, wrong, moment, lost = random.Random(given.seed), Disk(folder), 0, 0, 0
        chosen = [int(moments * (number + rng.random()) / given.losses) for number in range(given.losses)]
        for line in lines:
            if not disk.run(line):
                continue
            for number in range(chosen.count(moment)):
                after = Path(scratch, f"{moment}-{number}")
                after.mkdir()
                disk.lose_power(rng, after)
                problem = find_problem(after, states[disk.acknowledged : disk.acknowledged + 2])
                wrong += problem is not None
                lost += 1
                if problem is not None:
                    print(
                        f"after call {moment} of {moments}, {disk.acknowledged} changes: {problem}",
                        flush=True,
                    )
            moment += 1
    print(f"{lost} losses of power at {moments} calls, {wrong} wrong")
    sys.exit(bool(wrong))


def find_problem(folder, allowed):
    """What is wrong with a library after a loss of power, which must have one of these sets of photos."""
    index = LocalIndex(folder)
    try:
        problems = index.verify()
        if not problems and {photo.path for photo in index.photos()} not in allowed:
            problems = [f"{len(index.photos())} photos, not {[len(photos) for photos in allowed]}"]
        index.adopt("model", 64)  # it can be changed
        return problems[0] if problems else None
    except Exception as error:
        return repr(error)
    finally:
        index.close()


if __name__ == "__main__":
    main()
