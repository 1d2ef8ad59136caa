"""Several indexed folders as one: `fishermix serve Pictures Camera`.

Paths are relative to the folder that contains them all and begin with that of their own folder, so that
filters by folder work as in one folder. Each folder keeps its own index.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fishermix.errors import FishermixError
from fishermix.retrieval.details import Details
from fishermix.retrieval.ignore import is_ignored, is_skipped_below, parse_patterns
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.photo_files import default_index
from fishermix.retrieval.store import Entry, Hit, Stamp, Store, Summary
from fishermix.retrieval.update import Changes
from fishermix.vision.formats import is_part

T = TypeVar("T")


def drop_inner_folders(
    folders: Iterable[Path], exclude: Sequence[str] = (), update: bool = True
) -> list[Path]:
    """Absolute folders, each once and without those that the index of another one covers.

    exclude : globs of photos and folders that no index covers
    update : whether the indexes are updated; if not, a folder with its own index is kept
    """
    given, patterns = list(dict.fromkeys(folders)), parse_patterns(exclude)

    def is_covered(folder: Path, other: Path) -> bool:
        if not folder.is_relative_to(other) or is_skipped_below(other, folder):
            return False
        names = folder.relative_to(other).parts
        above = ("/".join(names[:depth]) for depth in range(1, len(names) + 1))
        return not any(is_ignored(path, True, patterns) for path in above)

    kept = list[Path]()
    for one in sorted(given, key=lambda folder: len(folder.parts)):  # outer folders first
        has_own = (default_index(one) / "index.sqlite").is_file()
        if (has_own and not update) or not any(is_covered(one, other) for other in kept):
            kept.append(one)
    return [one for one in given if one in kept]


class SeveralStores:
    """The stores of several folders as one `Store`, by the prefixes of their paths, which end in a slash.

    The prefix of a folder that contains the others is empty. A photo belongs to the innermost folder.
    """

    root = None

    def __init__(self, stores: Mapping[str, Store]):
        self.stores = dict(sorted(stores.items(), key=lambda one: -len(one[0])))  # inner folders first
        self._inner = {
            prefix: tuple(other for other in self.stores if other != prefix and other.startswith(prefix))
            for prefix in self.stores
        }
        self.name = " and ".join(store.name for store in self.stores.values())

    def find(self, path: str) -> tuple[str, Store]:
        """The prefix and the store of a path."""
        return next((prefix, store) for prefix, store in self.stores.items() if path.startswith(prefix))

    def _foreign_paths(self, prefix: str, paths: Iterable[str]) -> list[str]:
        """Those of the paths of a store that belong to another one, which is inside its folder."""
        inner = self._inner[prefix]
        return [path for path in paths if (prefix + path).startswith(inner)] if inner else []

    def writing(self) -> AbstractContextManager[Any]:
        stack = ExitStack()
        try:
            for store in self.stores.values():
                stack.enter_context(store.writing())
        except BaseException:
            stack.close()
            raise
        return stack

    def adopt(self, model_key: str, dimension: int) -> bool:
        dropped = [store.adopt(model_key, dimension) for store in self.stores.values()]
        return any(dropped)

    def model_key(self) -> str:
        """The key that all stores have; empty if they differ."""
        keys = {store.model_key() for store in self.stores.values()}
        return keys.pop() if len(keys) == 1 else ""

    def stamps(self) -> dict[str, Stamp]:
        return self._merge(lambda store: store.stamps())

    def details(self, paths: Sequence[str] | None = None) -> dict[str, Details]:
        if paths is None:
            return self._merge(lambda store: store.details())
        found: dict[str, Details] = {}
        for prefix, store in self.stores.items():
            asked = [path.removeprefix(prefix) for path in paths if self.find(path)[1] is store]
            if asked:
                found |= {prefix + path: one for path, one in store.details(asked).items()}
        return found

    def paths_without_details(self) -> list[str]:
        return list(self._merge(lambda store: dict.fromkeys(store.paths_without_details())))

    def nearest(self, queries: np.ndarray, n: int) -> list[list[Hit]]:
        found = []
        for prefix, store in self.stores.items():
            foreign = set(self._foreign_paths(prefix, store.stamps())) if self._inner[prefix] else set()
            found.append(
                [
                    [replace(hit, path=prefix + hit.path) for hit in hits if hit.path not in foreign][:n]
                    for hits in store.nearest(queries, n + len(foreign))
                ]
            )
        return [list(heapq.merge(*each, key=lambda hit: -hit.score))[:n] for each in zip(*found)]

    def sample_scores(self, query: np.ndarray, at_most: int) -> np.ndarray:
        share = max(1, at_most // len(self.stores))
        return np.concatenate([store.sample_scores(query, share) for store in self.stores.values()])

    def contents(self) -> tuple[list[list[str]], np.ndarray]:
        paths, vectors = list[list[str]](), []
        for prefix, store in self.stores.items():
            contents, some = store.contents()
            foreign = set(self._foreign_paths(prefix, (path for one in contents for path in one)))
            own = [[prefix + path for path in one if path not in foreign] for one in contents]
            paths += [one for one in own if one]
            vectors.append(some[[bool(one) for one in own]])
        return paths, np.concatenate(vectors)

    def path_of(self, photo: str) -> str | None:
        found = ((prefix, store.path_of(photo)) for prefix, store in self.stores.items())
        return next((prefix + path for prefix, path in found if path is not None), None)

    def id_of(self, path: str) -> str | None:
        prefix, store = self.find(path)
        return store.id_of(path.removeprefix(prefix))

    def vector_of(self, photo: str) -> np.ndarray | None:
        found = (store.vector_of(photo) for store in self.stores.values())
        return next((vector for vector in found if vector is not None), None)

    def summary(self) -> Summary:
        all_ = [store.summary() for store in self.stores.values()]
        names = ("photos", "contents", "pictures", "bytes")
        totals = {name: sum(getattr(one, name) for one in all_) for name in names}
        for prefix, store in self.stores.items():
            if self._inner[prefix]:
                readable = [*store.details(), *store.paths_without_details()]
                foreign = self._foreign_paths(prefix, readable)
                totals["pictures"] -= len(foreign)
                totals["photos"] -= sum(not is_part(path) for path in foreign)
        prefixed = zip(self.stores, all_)
        unreadable = {prefix + path: why for prefix, one in prefixed for path, why in one.unreadable.items()}
        return replace(all_[0], unreadable=unreadable, model_key=self.model_key(), **totals)

    def verify(self) -> list[str]:
        return [problem for store in self.stores.values() for problem in store.verify()]

    def close(self) -> None:
        for store in self.stores.values():
            store.close()

    def _merge(self, ask: Callable[[Store], Mapping[str, T]]) -> dict[str, T]:
        found: dict[str, T] = {}
        for prefix, store in self.stores.items():
            values = dict(ask(store))
            for path in self._foreign_paths(prefix, values):
                del values[path]
            found |= {prefix + path: value for path, value in values.items()}
        return found

    def remember_folder(self, folder: Path) -> None:
        """Nothing: each store has noted its own folder."""

    def known_contents(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Those that every store has: a photo may be written to any of them."""
        return set.intersection(*(store.known_contents(hashes) for store in self.stores.values()))

    def write(self, entries: Sequence[Entry], removed: Sequence[str] = ()) -> None:
        """In one transaction per store."""
        for prefix, store in self.stores.items():
            own = [one for one in entries if self.find(one.path)[1] is store]
            store.write(
                [replace(one, path=one.path.removeprefix(prefix)) for one in own],
                [path.removeprefix(prefix) for path in removed if self.find(path)[1] is store],
            )

    def write_details(self, details: Mapping[str, Details]) -> None:
        for prefix, store in self.stores.items():
            own = [path for path in details if self.find(path)[1] is store]
            store.write_details({path.removeprefix(prefix): details[path] for path in own})

    def tune(self) -> None:
        for store in self.stores.values():
            store.tune()

    def delete(self) -> None:
        for store in self.stores.values():
            store.delete()


class SeveralFolders(PhotoIndex):
    """The indexes of several folders, searched and updated as one."""

    def __init__(self, indexes: Sequence[PhotoIndex]):
        common = Path(os.path.commonpath([index.folder for index in indexes]))
        prefixes = {index.folder.relative_to(common).as_posix() + "/": index for index in indexes}
        self._indexes = {prefix.removeprefix("./"): index for prefix, index in prefixes.items()}
        self._stores = SeveralStores({prefix: index.store for prefix, index in self._indexes.items()})
        super().__init__(common, indexes[0].model, store=self._stores, exclude=indexes[0].exclude)

    def close(self) -> None:
        """Close all indexes."""
        for index in self._indexes.values():
            index.close()

    @property
    def parts(self) -> list[PhotoIndex]:
        return list(self._indexes.values())

    def part_of(self, path: str) -> tuple[PhotoIndex, str]:
        prefix = self._stores.find(path)[0]
        return self._indexes[prefix], path.removeprefix(prefix)

    def _excludes(self, path: str) -> bool:
        index, relative = self.part_of(path)
        return index._excludes(relative)

    def update(self) -> Changes:
        """Update every index. A folder that cannot be updated, for example on a disk that is not mounted, is
        reported after the others.
        """
        total, problems = Changes(), []
        for prefix, index in self._indexes.items():
            try:
                changes = index.update()
            except FishermixError as error:
                problems.append(error)
                continue
            for name in ("encoded", "recognised", "removed"):
                setattr(total, name, getattr(total, name) + getattr(changes, name))
            total.another_model |= changes.another_model
            total.unreadable |= {prefix + path: reason for path, reason in changes.unreadable.items()}
            for suffix, count in changes.skipped.items():
                total.skipped[suffix] = total.skipped.get(suffix, 0) + count
            total.left_out += changes.left_out
        if problems:
            raise problems[0] if len(problems) == 1 else FishermixError(" ".join(map(str, problems)))
        return total
