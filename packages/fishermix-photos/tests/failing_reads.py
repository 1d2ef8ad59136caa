"""Lets each single read of a LIBRARY, its argument, fail, and all from one on. Prints what is reported."""

import ctypes
import errno
import json
import os
import sys

from fishermix.errors import FishermixError
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.search.results import LibraryDamaged
from tiny_model import TinyModel

USES = {
    "list": lambda library: library.folders(),
    "photos": lambda library: library._store.photos(),
    "names": lambda library: library._store.count_names(["red"]),
    "search": lambda library: library.search("red photos"),
    "doctor": lambda library: library.verify(),
}


def report(use, place):
    """What a use of a library ends in."""
    try:
        with PhotoLibrary(place, TinyModel()) as library:
            found = use(library)
    except LibraryDamaged as error:
        return f"damaged: {error}"
    except FishermixError as error:
        return str(error)
    return f"damaged: {found}" if use is USES["doctor"] and found else "done"


def main(place):
    fail_calls = ctypes.CDLL(None).fail_calls  # see failing_calls.c
    reports = []

    def fail_reads(first, last):
        return fail_calls(os.fsencode(place), 2, first, last, errno.EIO)

    for name, use in USES.items():
        fail_reads(0, 0)
        assert report(use, place) == "done"
        for number in range(1, fail_reads(0, 0) + 1):
            for last in (number, 1 << 30):
                fail_reads(number, last)
                reports.append((name, number == last, report(use, place)))
    fail_reads(0, 0)
    json.dump(reports, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
