"""A captioner on a data set: the points it describes, and an HTML page of photos with its sentences."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from fishermix.caption.batches import CaptionSet
from fishermix.caption.confidence import fit_confidence, is_right
from fishermix.model.training import image_features
from fishermix.vision.images import open_photo

if TYPE_CHECKING:
    from fishermix.caption.captioner import Captioner
    from fishermix.datasets import Dataset
    from fishermix.model.model import ImageTextModel

FEWEST_TO_CALIBRATE = 100  # photos; fewer say little about how often a sentence is right
JPEG_QUALITY = 80  # small files; damage is invisible at the size of the page
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


def make_caption_set(
    model: ImageTextModel, dataset: Dataset, features: str | os.PathLike | None
) -> tuple[Dataset, CaptionSet]:
    """The readable photos of `dataset` that have sentences, and the same as a `CaptionSet`.

    features : folder of the feature cache, or None for no cache
    """
    dataset = dataset.select(np.unique(dataset.image_of))
    dataset, vectors = image_features(dataset, model.image_encoder, features)
    return dataset, CaptionSet(model.image_points(vectors), dataset.sentences, dataset.image_of)


def calibrate(model: ImageTextModel, captioner: Captioner, captions: CaptionSet) -> None:
    """Fit the confidence of the captioner to photos that it was not trained on."""
    written = captioner.describe(captions.points, encode_text=model.encode_text)
    right = [is_right(one.sentence, true) for one, true in zip(written, captions.references())]
    points = model.encode_text([one.sentence for one in written])
    others = np.roll(captions.points, len(written) // 2, axis=0)
    captioner.confidence = fit_confidence(
        np.array([one.cosine for one in written]),
        np.array([one.agreement for one in written]),
        np.array(right),
        np.einsum("nd,nd->n", points, others),
    )


def render_page(
    title: str,
    photos: Sequence[str | os.PathLike],
    written: Sequence[str],
    true: Sequence[Sequence[str]],
    side: int = 320,
) -> str:
    """The HTML of a page of photos, with what the captioner wrote and what people wrote.

    The page contains its photos, scaled down to a shorter side of `side` pixels.
    """
    figures = "\n".join(
        f"<figure><img alt='{escape(sentence, quote=True)}' src='{_embed_photo(photo, side)}'>"
        f"<figcaption><p>{escape(sentence)}</p><ul>{_list_items(references)}</ul></figcaption></figure>"
        for photo, sentence, references in zip(photos, written, true, strict=True)
    )
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n<p>Bold: written by the model. Below: written by people.</p>\n"
        f"<main>\n{figures}\n</main></body></html>\n"
    )


def _list_items(sentences: Sequence[str]) -> str:
    return "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)


def _embed_photo(photo: str | os.PathLike, side: int) -> str:
    image = open_photo(photo, side=side)
    scale = side / min(image.size)
    if scale < 1:
        image = image.resize((round(image.width * scale), round(image.height * scale)))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
