"""The text in the photos of a library: a second pass, after the photos are in it.

Photos are read one by one, and stored every few seconds: an interruption loses only these, and the next pass
goes on with what is left. Photos of the same content are read once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from fishermix.errors import FishermixError
from fishermix.progress import progress

from fishermix_photos.index.names import fold
from fishermix_photos.index.protocol import PhotoIndex
from fishermix_photos.index.scan import read_stamp
from fishermix_photos.index.values import Unread
from fishermix_photos.photos.formats import UnreadableImage
from fishermix_photos.photos.text import ReadText, open_picture

SECONDS_PER_COMMIT = 5.0
# Kinds of failures that say nothing about the photo: the process was killed, or the machine was too busy.
PASSING = {"crashed", "too_slow", "too_large", "cannot_read", "missing_package"}
MOST_FAILURES = 5  # in a row from the first photo on: then it is the reader that fails
WORDS_OF_DOCUMENT = 60
WORDS_OF_SCREENSHOT = 10
# The shorter and the longer side of common screens in pixels. The picture of one window has other sizes.
PHONES = "720x1280 720x1520 720x1560 720x1600 750x1334 828x1792 1080x1920 1080x2160 1080x2220 1080x2280"
PHONES += (
    " 1080x2340 1080x2400 1125x2436 1170x2532 1179x2556 1206x2622 1242x2208 1242x2688 1284x2778 1290x2796"
)
PHONES += " 1320x2868 1440x2560 1440x2960 1440x3040 1440x3088 1440x3120 1440x3200"
TABLETS = "768x1024 1200x1920 1488x2266 1536x2048 1600x2560 1620x2160 1640x2360 1668x2224 1668x2388 2048x2732"
DESKTOPS = "720x1280 768x1366 800x1280 900x1440 864x1536 900x1600 1050x1680 1080x1920 1200x1920 1440x2560"
DESKTOPS += " 1600x2560 1800x2880 1964x3024 2160x3840 2234x3456 1664x2560"
SCREENS = {tuple(map(int, size.split("x"))) for size in f"{PHONES} {TABLETS} {DESKTOPS}".split()}


class TextCounts(NamedTuple):
    """What a pass has read: photos of different content, those with text, those that could not be read."""

    photos: int = 0
    with_text: int = 0
    failed: int = 0


def read_texts(
    index: PhotoIndex, read: ReadText, prefixes: Sequence[str] = (), skip: set[bytes] | None = None
) -> TextCounts:
    """Read the text in photos below the prefixes that have not been read before.

    A damaged photo counts as one without text. One whose file is away or has changed since the last update,
    or which a later pass may be able to read, is left to it.

    skip : the hashes of photos that are left to a later pass, to which such photos are added
    """
    skip = set() if skip is None else skip
    unread = (photo for photo in index.unread(prefixes) if photo.sha256 not in skip)
    groups = [list(group) for _, group in groupby(unread, key=lambda photo: photo.sha256)]
    if not groups:
        return TextCounts()
    texts = _Texts(index, skip)
    with progress("reading text in photos", total=len(groups)) as bar:
        try:
            for group in groups:
                texts.add(group, read)
                bar.advance()
        finally:  # what was read before an interruption is kept
            texts.commit()
    return TextCounts(texts.photos, texts.with_text, texts.failed)


class _Texts:
    """Texts on their way into an index."""

    def __init__(self, index: PhotoIndex, skip: set[bytes]):
        self._index = index
        self._skip = skip
        self._read: list[tuple[bytes, str, str]] = []  # hash, words and text
        self._failed: list[Unread] = []  # since the beginning, until one was read
        self._committed = time.monotonic()
        self.photos = self.with_text = self.failed = 0

    def add(self, group: Iterable[Unread], read: ReadText) -> None:
        """Read the first photo of the same content that is there."""
        photo = next(filter(_is_unchanged, group), None)
        if photo is None:
            return
        try:
            text = read(open_picture(photo.path))
        except UnreadableImage as error:
            self.failed += 1
            self._failed.append(photo)
            if error.may_change or error.code in PASSING:
                self._skip.add(photo.sha256)
            if self.photos == 0 and len(self._failed) == MOST_FAILURES:
                raise FishermixError(
                    f"Text in photos cannot be read: {error.reason}. Reinstall fishermix-photos[text].",
                    code="cannot_read",
                ) from error
        else:
            if not _is_unchanged(photo):
                return
            self.photos += 1
            self.with_text += bool(text)
            text = text.encode("utf8", "replace").decode()  # no lone surrogates
            self._read.append((photo.sha256, find_words(photo, text), text))
        if time.monotonic() - self._committed >= SECONDS_PER_COMMIT:
            self.commit()

    def commit(self) -> None:
        """Store what was read, and that the others cannot be, unless nothing could be read so far."""
        if self.photos:
            self._read += [(photo.sha256, "", "") for photo in self._failed if photo.sha256 not in self._skip]
            self._failed.clear()
        if self._read:
            self._index.write_texts(self._read)
            self._read.clear()
        self._committed = time.monotonic()


def find_words(photo: Unread, text: str) -> str:
    """The words of the text in a photo, after those of its kind: "document" or "screenshot"."""
    words = fold(text)
    count = len(words.split())
    kinds = []
    if count >= WORDS_OF_DOCUMENT:
        kinds.append("document documents")
    size = tuple(sorted((photo.width or 0, photo.height or 0)))
    if count >= WORDS_OF_SCREENSHOT and photo.kind == "PNG" and not photo.camera and size in SCREENS:
        kinds.append("screenshot screenshots")
    return " ".join([*kinds, words])


def _is_unchanged(photo: Unread) -> bool:
    """Whether the file is the one that is in the library."""
    try:
        return read_stamp(os.stat(photo.path)) == photo.stamp
    except OSError:
        return False
