"""A self-contained HTML page of photos with what was written for them and what people wrote."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from html import escape

from PIL import Image, ImageOps

STYLE = """
:root { color-scheme: light dark; --line: #8884; --quiet: #777; }
body { font: 16px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
main { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); }
figure { border: 1px solid var(--line); border-radius: .5rem; margin: 0; overflow: hidden; }
img { display: block; height: 15rem; object-fit: cover; width: 100%; }
figcaption { padding: .75rem 1rem 1rem; }
figcaption p { font-weight: 600; margin: 0 0 .5rem; }
ul { color: var(--quiet); font-size: .9rem; margin: 0; padding-left: 1.1rem; }
"""


def page(
    title: str,
    photos: Sequence[str | os.PathLike],
    written: Sequence[str],
    true: Sequence[Sequence[str]],
    side: int = 320,
) -> str:
    """The page as HTML; it holds its pictures, their shorter side cut down to `side` pixels."""
    figures = "\n".join(
        f"<figure><img alt='{escape(sentence, quote=True)}' src='{_picture(photo, side)}'>"
        f"<figcaption><p>{escape(sentence)}</p><ul>{_items(references)}</ul></figcaption></figure>"
        for photo, sentence, references in zip(photos, written, true, strict=True)
    )
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n<p>Bold: written by the model. Below: written by people.</p>\n"
        f"<main>\n{figures}\n</main></body></html>\n"
    )


def _items(sentences: Sequence[str]) -> str:
    return "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)


def _picture(photo: str | os.PathLike, side: int) -> str:
    with Image.open(photo) as opened:
        image = ImageOps.exif_transpose(opened).convert("RGB")
    scale = side / min(image.size)
    if scale < 1:
        image = image.resize((round(image.width * scale), round(image.height * scale)))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
