"""A contact sheet: one self-contained HTML file with small copies of photos."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable, Iterable
from html import escape
from itertools import groupby

from fishermix.errors import FishermixError
from fishermix.saved import write_atomically

from fishermix_photos.index.photo import Photo, replace_undecodable
from fishermix_photos.photos.formats import UnreadableImage
from fishermix_photos.photos.open import borrow_photo

LONGEST_SIDE = 480  # pixels of a photo
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ground: #f7f7f5; --card: #fff; --text: #1c1e21;
  --soft: #63676d; --line: #e3e3df; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ground: #141517; --card: #1e2023; --text: #ececea; --soft: #a0a4aa; --line: #303338; }}
}}
body {{ margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 78rem; background: var(--ground);
  color: var(--text); font: 16px/1.45 system-ui, sans-serif; }}
h1 {{ font-size: 1.5rem; margin: 0 0 .25rem; }}
h2 {{ font-size: 1.15rem; margin: 1.75rem 0 .75rem; }}
p {{ margin: 0 0 1.5rem; color: var(--soft); }}
ol {{ list-style: none; margin: 0; padding: 0; display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(15rem, 100%), 1fr)); }}
li {{ background: var(--card); border: 1px solid var(--line); border-radius: 10px; overflow: hidden; }}
img, .missing {{ display: block; width: 100%; aspect-ratio: 4 / 3; object-fit: cover;
  background: var(--line); }}
.missing {{ display: grid; place-items: center; color: var(--soft); }}
.text {{ padding: .6rem .8rem .7rem; }}
.score {{ font-variant-numeric: tabular-nums; font-weight: 600; }}
.path {{ color: var(--soft); overflow-wrap: anywhere; font-size: .85rem; }}
</style>
<h1>{title}</h1>
<p>{subtitle}</p>
{sections}</html>
"""
PHOTO = """<li>{picture}<div class="text"><span class="score">{score}</span>
<div class="path">{path}</div></div></li>
"""


def make_thumbnail(photo: str | os.PathLike | bytes, longest_side: int, quality: int = 82) -> bytes:
    """A photo as JPEG bytes, with no side longer than `longest_side` pixels.

    The photo is decoded, turned upright, scaled and encoded again, so that nothing but its pixels is shown:
    no location, no camera, and nothing that is not a picture.
    """
    try:
        with borrow_photo(photo, side=longest_side) as image:
            image.thumbnail((longest_side, longest_side))
    except UnreadableImage as error:
        # Without the path: the message of an error goes to clients, who must not learn where photos are.
        raise UnreadableImage(error.reason, code=error.code) from None
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality)
    return out.getvalue()


def write_contact_sheet(
    out: str | os.PathLike, title: str, subtitle: str, photos: Iterable[Photo], name: Callable[[Photo], str]
) -> None:
    """Write an HTML file of photos with their names, under a heading for each band. Every text is escaped."""
    sections = []
    for band, section in groupby(photos, key=lambda photo: photo.band):
        shown = "".join(
            PHOTO.format(
                picture=show_picture(photo.picture, LONGEST_SIDE),
                score="" if photo.score is None else f"{photo.score:.3f}",
                path=_escape(name(photo)),
            )
            for photo in section
        )
        heading = f"<h2>{_escape(band.capitalize())}</h2>\n" if band else ""
        sections.append(f"{heading}<ol>\n{shown}</ol>\n")
    page = PAGE.format(title=_escape(title), subtitle=_escape(subtitle), sections="".join(sections))
    write_atomically(out, page.encode(), private=True)


def _escape(text: str) -> str:
    return escape(replace_undecodable(text))


def show_picture(file: str | os.PathLike, longest_side: int) -> str:
    """The HTML of a small copy of a photo."""
    try:
        data = base64.b64encode(make_thumbnail(file, longest_side)).decode()
    except FishermixError:
        return '<div class="missing">cannot be shown</div>'
    return f'<img alt="" loading="lazy" src="data:image/jpeg;base64,{data}">'
