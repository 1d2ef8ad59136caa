"""Let single system calls on a photo library fail: python tests/errors.py [--every N] [USE ...]

For each use of a library (list, search, update, ...), the system calls on its files are counted: open, read,
write, fsync, rename and stat. Then the use is repeated, and each call fails once with each error (EIO,
ENOSPC, ENOMEM, EMFILE, ESTALE). Each time, what is reported must be a message, not a traceback, and must not
be the advice to delete the library, which is sound: nothing may be lost, and the same use must succeed
afterwards.
"""

import argparse
import ctypes
import errno
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1] / "packages/fishermix-photos/tests"
sys.path[:0] = [str(TESTS)]

from failing_calls import build_failing_calls  # noqa: E402
from fishermix.errors import FishermixError  # noqa: E402
from fishermix_photos.disk import explain_os_error  # noqa: E402
from fishermix_photos.index import nearest, writer  # noqa: E402
from fishermix_photos.library import PhotoLibrary  # noqa: E402
from fishermix_photos.search.results import LibraryDamaged  # noqa: E402
from tiny_model import NAMES, TinyModel, paint  # noqa: E402

KINDS = {"open": 1, "read": 2, "write": 4, "fsync": 8, "rename": 16, "stat": 32}
ERRORS = (errno.EIO, errno.ENOSPC, errno.ENOMEM, errno.EMFILE, errno.ESTALE)


def remove(library, photos):
    if photos / "sub" in [status.folder for status in library.folders()]:
        library.remove(photos / "sub")


# Each leaves what was there before it, or what is there after it.
USES = {
    "list": lambda library, photos: library.folders(),
    "search": lambda library, photos: library.search("red"),
    "doctor": lambda library, photos: library.verify(),
    "update": lambda library, photos: library.update([photos]),
    "remove": remove,
    "create": lambda library, photos: library.update([photos]),
    "migrate": lambda library, photos: library.count(),
}


class World:
    """Photos, a library that has some of them, and a fresh copy of it for each error."""

    def __init__(self, folder):
        self.photos, self.place = folder / "photos", folder / "library"
        self.libraries = folder / "libraries"
        for name in NAMES:
            paint(self.photos / f"{name}.png", name)
        for name in ("red", "blue"):
            paint(self.photos / "sub" / f"{name}.png", name, "white")
        sub = self.photos / "sub"
        with PhotoLibrary(self.libraries / "two folders", TinyModel()) as library:
            library.update([sub])
            (self.photos / ".fishermixignore").write_text("sub/\n")
            library.update([self.photos])
        paint(self.photos / "new.png", "red", "green")
        (self.photos / "grey.png").unlink()
        (self.libraries / "none").mkdir()
        with zipfile.ZipFile(TESTS / "library/versions/library-0.3.zip") as packed:
            packed.extractall(self.libraries / "0.3")
        # A test library is large enough to have codes, and old enough to be compacted.
        nearest.BLOCK_ROWS, writer.FEWEST_TO_COMPACT, writer.DAYS_ORPHANED = 4, 1, -1

    def renew(self, use):
        """The library as it is before a use."""
        shutil.rmtree(self.place, ignore_errors=True)
        source = {"create": "none", "migrate": "0.3"}.get(use, "two folders")
        shutil.copytree(self.libraries / source, self.place)

    def list_photos(self):
        """What the library has: each path with its content, sorted; or why it cannot be said."""
        try:
            return self._list_photos()
        except Exception as error:
            return [f"unsound: {error!r}"]

    def _list_photos(self):
        with PhotoLibrary(self.place, TinyModel()) as library:
            assert library.verify() == []
            index = library._store
            photos = {photo.id: photo.path for photo in index.photos()}
            pictures = index.pictures(list(photos))
            return sorted(f"{photos[id]} {one.embedding.tobytes().hex()}" for id, one in pictures.items())


def report(use, world):
    """What a use of the library ends in: done, a message, or a traceback."""
    try:
        with PhotoLibrary(world.place, TinyModel()) as library:
            found = USES[use](library, world.photos)
        return f"damaged: {found}" if use == "doctor" and found else "done"
    except LibraryDamaged as error:
        return f"damaged: {error}"
    except FishermixError as error:
        return str(error)
    except OSError as error:  # as the command explains it
        return explain_os_error(error) if error.errno else f"traceback: {error!r}"
    except BaseException as error:
        return f"traceback: {error!r}"


def in_child(work):
    """What a function returns in a process of its own."""
    reader, sender = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(sender, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(sender)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer)


def run_use(use, world, kind, number, error):
    """Let one call fail. A complaint if anything is wrong afterwards, else None; and what was reported."""
    fail_calls, place = ctypes.CDLL(None).fail_calls, os.fsencode(world.place)

    def work():
        fail_calls(place, KINDS[kind], number, number, error)
        message = report(use, world)
        return message, fail_calls(place, 0, 0, 0, 0)

    return in_child(work)


def check_use(use, world, every):
    """What is reported of all errors in one use, and how many of the reports are wrong."""
    world.renew(use)
    before = in_child(world.list_photos)
    counts = {}
    for kind in KINDS:
        world.renew(use)
        message, counts[kind] = run_use(use, world, kind, 1 << 30, 0)
        assert message == "done", message
    after = in_child(world.list_photos)
    print(f"{use}: {counts}", file=sys.stderr, flush=True)
    calls = [(kind, call) for kind, count in counts.items() for call in range(1, count + 1)]
    cases = [(*call, error) for call in calls for error in ERRORS]
    chosen = sorted(random.Random(use).sample(range(len(cases)), -(-len(cases) // every)))
    reported, n_wrong = Counter(), 0
    for kind, call, error in (cases[number] for number in chosen):
        world.renew(use)
        message, _ = run_use(use, world, kind, call, error)
        reported[message.partition(".")[2].strip() or message] += 1
        wrong = any(word in message for word in ("traceback", "damaged", "elete"))
        left = in_child(world.list_photos)
        wrong = wrong or not set(before) & set(after) <= set(left) <= set(before) | set(after)
        again = in_child(lambda: report(use, world))
        wrong = wrong or again != "done" or in_child(world.list_photos) != after
        if wrong:
            what = f"{kind} {call} of {counts[kind]} fails with {errno.errorcode[error]}: {message}"
            print(f"WRONG {use}: {what}\n  again: {again}\n  left: {str(left)[:300]}", flush=True)
        n_wrong += wrong
    return reported, n_wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("use", nargs="*", default=list(USES))
    parser.add_argument("--every", type=int, default=1, help="Only one of N errors, at random.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if "FAILING_CALLS" not in os.environ:
            environment = os.environ | {
                "LD_PRELOAD": str(build_failing_calls(folder)),
                "FAILING_CALLS": "1",
                "OMP_NUM_THREADS": "1",
            }
            sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode)
        world, total, all_wrong = World(Path(folder)), Counter(), 0
        for use in given.use:
            reported, n_wrong = check_use(use, world, given.every)
            print(f"{use}: {reported.total()} errors, {n_wrong} wrong", flush=True)
            total += reported
            all_wrong += n_wrong
    for message, count in total.most_common():
        print(f"{count:6}  {message[:150]}")
    print(f"{total.total()} errors in system calls, {all_wrong} wrong")
    sys.exit(bool(all_wrong))


if __name__ == "__main__":
    main()
