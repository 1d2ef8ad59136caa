"""Pictures and videos of every format, and the metadata of a photo."""

import sys
from pathlib import Path

import numpy as np
from fishermix.errors import FishermixError
from fishermix_photos.photos.open import decode_bytes, list_photos, open_photo, read_metadata
from PIL import Image, PngImagePlugin

from tests.fuzz.kind import Kind

sys.path.insert(0, str(Path(__file__).parents[2] / "packages/fishermix-photos/tests/vision"))
from make_formats import make_dng, make_heic, make_jxl, make_video, to_bytes

RNG = np.random.default_rng(0)
LIMIT = 1_000_000  # pixels


def paint():
    return Image.fromarray(RNG.integers(0, 255, size=(24, 32, 3)).astype(np.uint8))


def make_png(image):
    """A palette, transparency and texts: the chunks in which a damaged PNG differs from another."""
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Title", "a photo", zip=True)
    texts.add_itxt("Author", "nobody", "en", "nobody")
    flat = image.resize((4, 3)).quantize(8)
    exif = make_exif().tobytes()
    return to_bytes(flat, "PNG", pnginfo=texts, transparency=1, dpi=(72, 72), gamma=0.45, exif=exif)


def make_exif():
    exif = Image.Exif()
    exif[0x010F], exif[0x0110], exif[0x0112] = "Maker", "Model", 6
    exif.get_ifd(0x8769)[0x9003] = "2014:05:06 07:08:09"
    place = {1: "N", 2: (52.0, 30.0, 1.5), 3: "E", 4: (13.0, 24.0, 0.5)}
    exif.get_ifd(0x8825).update(place)
    return exif


def make_file(name, make):
    return lambda folder: (folder / name).write_bytes(make(paint()))


def read_picture(folder):
    """Decode as a worker does, but in this process, so that nothing a decoder raises stays unseen."""
    decode_bytes((folder / "picture").read_bytes(), LIMIT, side=8)


def read_video(folder):
    for part in list_photos(folder / "clip.mp4", LIMIT)[:3]:
        open_photo(part, LIMIT)
    read_metadata(folder / "clip.mp4")


def read_photo_metadata(folder):
    if len(read_metadata(folder / "photo.jpg")) < 6:
        raise FishermixError("something in it is not read")  # so that the table counts it as refused


MAKERS = {
    **{form: (lambda image, form=form: to_bytes(image, form)) for form in ("JPEG", "WEBP", "GIF", "BMP")},
    "progressive JPEG": lambda image: to_bytes(image, "JPEG", progressive=True),
    "PNG": make_png,
    "TIFF": lambda image: to_bytes(image, "TIFF"),
    "compressed TIFF": lambda image: to_bytes(image, "TIFF", compression="tiff_lzw"),
    "PPM": lambda image: to_bytes(image, "PPM"),
    "HEIC": make_heic,
    "AVIF": lambda image: to_bytes(image, "AVIF"),
    "JPEG XL": make_jxl,
    "RAW": make_dng,
}
PICTURES = {
    **{
        f"{form} picture": Kind(make_file("picture", make), read_picture, ("picture",), may_crash=True)
        for form, make in MAKERS.items()
    },
    "video": Kind(
        make_file("clip.mp4", lambda image: make_video([image, paint()])),
        read_video,
        ("clip.mp4",),
        may_crash=True,
    ),
    "EXIF metadata": Kind(
        make_file("photo.jpg", lambda image: to_bytes(image.resize((8, 8)), "JPEG", exif=make_exif())),
        read_photo_metadata,
        ("photo.jpg",),
    ),
}
