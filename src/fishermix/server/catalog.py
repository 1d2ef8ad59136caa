"""All files of an index with their details, in memory: browsing without a query, and what to filter by."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fishermix.retrieval.details import Details, Filter, date_in_name
from fishermix.retrieval.store import Store
from fishermix.vision.formats import find_format, split_part

SECONDS_KEPT = 30.0  # another process may change the index
MOST_FOLDERS = 200


def kind_of(path: str) -> str:
    """The name of a photo's format, for example JPEG or video."""
    found = find_format(split_part(path)[0])
    return found.name if found is not None else ""


@dataclass(frozen=True)
class PageFilter(Filter):
    """A filter of the page: also by the kind of file, a format's name, and by one folder, for example
    /2019/Holidays.
    """

    kind: str | None = None
    place: str | None = None

    def matches(self, path: str, details: Details) -> bool:
        return (
            (self.kind is None or kind_of(path) == self.kind)
            and (self.place is None or f"/{path}".startswith(f"{self.place.rstrip('/')}/"))
            and super().matches(path, details)
        )


class Entry(NamedTuple):
    path: str
    details: Details


class Catalog:
    """The files of a store, newest first."""

    def __init__(self, store: Store):
        self._store, self._lock = store, threading.Lock()
        self._entries: list[Entry] = []
        self._read = self._changed = float("-inf")

    def forget(self) -> None:
        """Read the index again for the next request, also if it is being read now."""
        self._changed = time.monotonic()

    def entries(self) -> list[Entry]:
        with self._lock:
            if self._read <= self._changed or time.monotonic() - self._read > SECONDS_KEPT:
                began = time.monotonic()
                known = self._store.details()
                # While a folder is indexed for the first time, only the names of its photos are known.
                for path in self._store.paths_without_details():
                    known.setdefault(path, Details(date_in_name(os.path.basename(path)), "name"))
                files = [Entry(*one) for one in known.items() if split_part(one[0])[0] == one[0]]
                files.sort(key=lambda entry: entry.path)
                files.sort(key=lambda entry: entry.details.taken or "", reverse=True)
                self._entries, self._read = files, began
            return self._entries

    def select(self, only: Filter, sort: str) -> list[Entry]:
        """The files that meet the conditions, in the order of `sort`: date (newest first), oldest, name."""
        found = self.entries()
        if only:
            only.check()
            found = [entry for entry in found if only.matches(*entry)]
        return sort_entries(found, sort)

    def count_years(self) -> list[tuple[str, int]]:
        years = Counter((entry.details.taken or "")[:4] for entry in self.entries())
        return sorted(((year, count) for year, count in years.items() if year), reverse=True)

    def count_folders(self) -> list[tuple[str, int]]:
        """The photos in each folder and the folders in it, by relative path; the largest folders only."""
        counts: Counter[str] = Counter()
        for entry in self.entries():
            folder = os.path.dirname(entry.path)
            while folder:
                counts[folder] += 1
                folder = os.path.dirname(folder)
        return sorted(counts.most_common(MOST_FOLDERS))

    def count_kinds(self) -> list[tuple[str, int]]:
        return Counter(kind_of(entry.path) for entry in self.entries()).most_common()


def sort_entries(entries: Iterable[Entry], sort: str) -> list[Entry]:
    found = list(entries)
    if sort == "oldest":
        return found[::-1]
    if sort == "name":
        return sorted(found, key=lambda entry: entry.path.lower())
    return found
