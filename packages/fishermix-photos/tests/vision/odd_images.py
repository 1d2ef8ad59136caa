"""A folder of every odd image: each readable one shows the same four colours, upright."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 64, 48
RED, GREEN, BLUE, WHITE = (220, 30, 30), (30, 180, 30), (30, 30, 220), (255, 255, 255)
QUADRANTS = (RED, GREEN, BLUE, WHITE)  # top left, top right, bottom left, bottom right


def four_colours(width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    image = Image.new("RGB", (width, height))
    for position, colour in enumerate(QUADRANTS):
        corner = (position % 2 * width // 2, position // 2 * height // 2)
        image.paste(colour, (*corner, corner[0] + width // 2, corner[1] + height // 2))
    return image


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def as_stored(image: Image.Image, orientation: int) -> Image.Image:
    """The pixels which a viewer turns back into `image`; EXIF says on which side row 0 and column 0 are.

    3: row 0 is the bottom, column 0 the right; 6: row 0 is the right side, column 0 the top; and so on.
    """
    pixels = np.asarray(image)
    row_0, column_0 = {
        1: ("top", "left"),
        2: ("top", "right"),
        3: ("bottom", "right"),
        4: ("bottom", "left"),
        5: ("left", "top"),
        6: ("right", "top"),
        7: ("right", "bottom"),
        8: ("left", "bottom"),
    }[orientation]
    if row_0 in ("left", "right"):
        pixels = pixels.swapaxes(0, 1)
    if row_0 in ("bottom", "right"):
        pixels = pixels[::-1]
    if column_0 in ("bottom", "right"):
        pixels = pixels[:, ::-1]
    return Image.fromarray(np.ascontiguousarray(pixels))


def turned(image: Image.Image, orientation: int, kind: str = "JPEG", **options: object) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(as_stored(image, orientation), kind, exif=exif, **options)


def readable() -> dict[str, bytes]:
    """File name to content; every one decodes to the four colours, in grey where the name begins so."""
    image = four_colours()
    grey = image.convert("L")
    clear = image.convert("RGBA")
    clear.paste((255, 255, 255, 0), (WIDTH // 2, HEIGHT // 2, WIDTH, HEIGHT))  # transparent: shown as white
    palette = image.convert("P", palette=Image.Palette.ADAPTIVE)
    transparent = palette.copy()
    transparent.info["transparency"] = palette.getpixel((WIDTH - 1, HEIGHT - 1))
    frames = [image, Image.new("RGB", image.size, "black")]
    sixteen = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    broken_exif = encoded(image, "JPEG", quality=95)
    broken_exif = (
        broken_exif[:2] + b"\xff\xe1\x00\x14Exif\0\0MM\0*\xff\xff\xff\xff\xff\xff\xff\xff" + broken_exif[2:]
    )
    found = {
        "plain.jpg": encoded(image, "JPEG", quality=95),
        "progressive.jpg": encoded(image, "JPEG", quality=95, progressive=True),
        "plain.png": encoded(image, "PNG"),
        "plain.webp": encoded(image, "WEBP", quality=95),
        "plain.bmp": encoded(image, "BMP"),
        "plain.ppm": encoded(image, "PPM"),
        "plain.tif": encoded(image, "TIFF"),
        "plain.mpo": encoded(image, "MPO", save_all=True, append_images=frames[1:], quality=95),
        "cmyk.jpg": encoded(image.convert("CMYK"), "JPEG", quality=95),
        "cmyk.tif": encoded(image.convert("CMYK"), "TIFF"),
        "palette.png": encoded(palette, "PNG"),
        "palette transparent.png": encoded(transparent, "PNG", transparency=transparent.info["transparency"]),
        "alpha.png": encoded(clear, "PNG"),
        "alpha.webp": encoded(clear, "WEBP", lossless=True),
        "animated.gif": encoded(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=50),
        "animated.webp": encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], quality=95),
        "animated.png": encoded(frames[0], "PNG", save_all=True, append_images=frames[1:]),
        "a png called.jpg": encoded(image, "PNG"),
        "exif damaged.jpg": broken_exif,
        "einfach schön 日本.png": encoded(image, "PNG"),
        "grey.jpg": encoded(grey, "JPEG", quality=95),
        "grey.png": encoded(grey, "PNG"),
        "grey alpha.png": encoded(grey.convert("LA"), "PNG"),
        "grey 16 bit.png": encoded(sixteen, "PNG"),
        "grey 16 bit.tif": encoded(sixteen, "TIFF"),
        "grey 32 bit.tif": encoded(Image.fromarray(np.asarray(grey).astype(np.int32) * 257), "TIFF"),
        "grey float.tif": encoded(Image.fromarray(np.asarray(grey).astype(np.float32) / 255), "TIFF"),
    }
    for orientation in range(1, 9):
        found[f"turned {orientation}.jpg"] = turned(image, orientation, quality=95)
        found[f"turned {orientation}.png"] = turned(image, orientation, "PNG")
        found[f"turned {orientation}.tif"] = turned(image, orientation, "TIFF")
        found[f"turned {orientation}.webp"] = turned(image, orientation, "WEBP", lossless=True)
    return found


def extreme() -> dict[str, bytes]:
    """Readable images of extreme shapes."""
    return {
        "one pixel.png": encoded(Image.new("RGB", (1, 1), RED), "PNG"),
        "one pixel.jpg": encoded(Image.new("RGB", (1, 1), RED), "JPEG"),
        "one bit.png": encoded(Image.new("1", (9, 7), 1), "PNG"),
        "very wide.png": encoded(Image.new("RGB", (30_000, 2), RED), "PNG"),
        "very tall.png": encoded(Image.new("RGB", (1, 30_000), RED), "PNG"),
    }


def unreadable() -> dict[str, bytes]:
    image = four_colours(200, 150)
    jpeg, png = encoded(image, "JPEG"), encoded(image, "PNG")
    return {
        "empty.jpg": b"",
        "text.jpg": b"This is not a photograph.",
        "truncated.jpg": jpeg[: len(jpeg) // 2],
        "truncated.png": png[: len(png) // 2],
        "header only.jpg": jpeg[:20],
        "bomb.png": png_of_size(60_000, 60_000),
        "postscript.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n",
        "drawing.svg": b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>",
        "damaged.png": png[:60] + b"\0" * 40 + png[100:],
    }


def png_of_size(width: int, height: int) -> bytes:
    """A PNG file whose header promises this many pixels, and which has hardly any."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 99))
        + chunk(b"IEND", b"")
    )


def make_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    """Write all of them; returns the readable paths and the unreadable ones, which are not only files."""
    folder.mkdir(parents=True, exist_ok=True)
    good, bad = {**readable(), **extreme()}, unreadable()
    for name, data in {**good, **bad}.items():
        (folder / name).write_bytes(data)
    others = [folder / "folder.jpg", folder / "missing.jpg"]
    others[0].mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.jpg")
        others.append(folder / "pipe.jpg")
    return [folder / name for name in good], [*(folder / name for name in bad), *others]
