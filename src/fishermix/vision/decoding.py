"""The bytes of a photo as an upright RGB image: only formats of an allow-list, with a pixel limit.

Photo files may be hostile or damaged: whatever a decoder raises becomes an `UnreadableImage` with a reason.
"""

from __future__ import annotations

import io
from functools import cache

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from fishermix.extras import install_command
from fishermix.vision.formats import RAW, explain_missing, get_format
from fishermix.vision.picture_cost import check_opened, check_proportion, check_size
from fishermix.vision.remarks import collect_remarks
from fishermix.vision.tiff import has_deep_planes, list_pages, looks_like_raw, read_page
from fishermix.vision.unreadable import UnreadableImage, explain_error

# Formats of photos that Pillow decodes itself. Never PostScript and the like, whose decoders run programs.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
# Formats that are tried only if the first bytes show them: Pillow's name of each.
SNIFFED = {"AVIF": "AVIF", "HEIC": "HEIF", "JPEG XL": "JXL"}
LEAST_OF_SIDE = 0.9  # an embedded thumbnail serves if no side is shorter than this share of `side`
ORIENTATION = 0x0112  # the EXIF tag
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode_bytes(
    data: bytes | Image.Image, max_pixels: int, side: int, page: int = 1
) -> tuple[Image.Image, list[str]]:
    """The upright RGB image and the remarks of its decoder, at any cost. Others call `open_photo`."""
    try:
        with collect_remarks() as remarks:
            return _decode(data, max_pixels, side, page), remarks
    except UnreadableImage:
        raise
    except Exception as error:
        raise explain_error(error, max_pixels, is_empty=not data) from error


def _decode(data: bytes | Image.Image, max_pixels: int, side: int, page: int) -> Image.Image:
    if isinstance(data, Image.Image):
        return _load(data, max_pixels)
    if not isinstance(data, bytes):
        raise UnreadableImage(f"{type(data).__name__} is neither a path nor bytes nor a PIL image")
    kind = sniff_format(data)
    if kind == "RAW":
        if (developed := _decode_raw(data, max_pixels, side)) is None:
            raise UnreadableImage("LibRaw does not read this RAW photo, or it is damaged")
        return developed
    if kind == "TIFF":
        return _decode_tiff(data, max_pixels, side, page)
    with open_file(data, kind) as image:
        return _load(image, max_pixels, side, data=data)


def sniff_format(data: bytes) -> str:
    """The name of the format that the first bytes show, for those that need a package; "" for others."""
    if data[:3] == b"\xff\xd8\xff":
        return "JPEG"
    if data[4:8] == b"ftyp":
        brands = {data[8:12]} | {data[at : at + 4] for at in range(16, min(64, len(data)), 4)}
        if data[8:12] == b"crx ":
            return "RAW"
        if brands & {b"avif", b"avis"}:
            return "AVIF"
        return "HEIC" if brands & set(_HEIF_BRANDS) else ""
    if data[:2] == b"\xff\x0a" or data[:12] == b"\0\0\0\x0cJXL \r\n\x87\n":
        return "JPEG XL"
    if data.startswith((b"FUJIFILMCCD-RAW", b"IIRO", b"IIRS", b"MMOR", b"IIU\0")):
        return "RAW"
    if data[:4] in (b"II*\0", b"MM\0*"):
        return "RAW" if data[8:10] == b"CR" else "TIFF"
    return ""


def open_file(data: bytes, kind: str) -> Image.Image:
    """The image, not yet decoded. Only the format that the first bytes show is tried."""
    if kind == "JPEG":  # not Image.open, whose limit is about the full size: a JPEG is decoded reduced
        return JpegImageFile(io.BytesIO(data))
    if kind in SNIFFED:
        check_installed(kind)
        _register(kind)
        return open_as(data, (SNIFFED[kind],))
    return open_as(data, FORMATS)


def open_as(data: bytes, formats: tuple[str, ...]) -> Image.Image:
    """The image, if it has one of these formats; the one place that asks Pillow for it."""
    return Image.open(io.BytesIO(data), formats=formats)


@cache
def _register(kind: str) -> None:
    """Make a format known to Pillow."""
    if kind == "HEIC":
        from pillow_heif import register_heif_opener

        register_heif_opener(decode_threads=1, depth_images=False, aux_images=False)
    elif kind == "JPEG XL":
        import pillow_jxl  # noqa: F401 - registers itself


def check_installed(kind: str) -> None:
    """Raise if the package that reads a format is not installed."""
    found = get_format(kind)
    if not found.is_installed:
        raise UnreadableImage(
            f"reading {kind} needs another package: {explain_missing(found)}", may_change=True
        )


def _decode_raw(data: bytes, max_pixels: int, side: int) -> Image.Image | None:
    """The preview of a RAW photo if it is large enough, else the sensor's data at half size; None if the
    bytes are no RAW photo.
    """
    from fishermix.vision.raw import develop, open_raw, read_preview

    check_installed("RAW")
    raw = open_raw(data)
    if raw is None:
        return None
    with raw:
        width, height = raw.sizes.width, raw.sizes.height
        if (preview := read_preview(raw)) is not None:
            with open_file(preview[0], "JPEG") as image:
                if min(image.size) >= side > 0 or max(image.size) >= max(width, height) // 2:
                    return _load(image, max_pixels, side, orientation=preview[1])
        check_size(width // 2, height // 2, max_pixels)
        return Image.fromarray(develop(raw))


def _decode_tiff(data: bytes, max_pixels: int, side: int, page: int) -> Image.Image:
    is_raw = looks_like_raw(data)
    if is_raw or (is_raw is None and RAW.is_installed):
        developed = _decode_raw(data, max_pixels, side)
        if developed is not None:
            return developed
    try:
        opened = open_as(data, ("TIFF",))
    except UnidentifiedImageError:
        return _decode_other_tiff(data, max_pixels, page)
    with opened as image:
        pages = list_pages(image, page)
        if len(pages) < page:
            raise UnreadableImage(f"the file has no page {page}")
        image.seek(pages[page - 1])
        check_proportion(image, image.size, len(data))
        if not has_deep_planes(image):
            return _load(image, max_pixels, side)
    return _decode_other_tiff(data, max_pixels, page)


def _decode_other_tiff(data: bytes, max_pixels: int, page: int) -> Image.Image:
    """A TIFF file that Pillow does not read, or not correctly."""
    try:
        values = read_page(data, page, lambda width, height: check_size(width, height, max_pixels))
    except ImportError as error:
        reason = f"this kind of TIFF needs another package: {install_command('tiff')}"
        raise UnreadableImage(reason, may_change=True) from error
    unit = _scale_to_unit_range(values.astype(np.float64))
    return Image.fromarray(np.rint(np.clip(unit, 0, 1) * 255).astype(np.uint8))


def _load(
    image: Image.Image, max_pixels: int, side: int = 0, orientation: int = 1, data: bytes | None = None
) -> Image.Image:
    """Decode an opened image; `data` is its file, `orientation` that of an image without EXIF."""
    full = image.size
    if side:
        _choose_reduction(image, side)
    check_opened(image, full, max_pixels, None if data is None else len(data))
    if side and data and image.format == "HEIF" and image.size == full:  # it has no thumbnail to read
        from fishermix.vision.heic import decode_reduced

        if (reduced := decode_reduced(image, data, 2 * side)) is not None:
            return reduced
    image.load()
    upright = _turn_upright(image, orientation)
    if side and image.format in SNIFFED.values():
        # As large as a reduced JPEG: a worker sends a few pixels instead of all.
        upright = upright.reduce(max(1, min(upright.size) // (2 * side)))
    return _convert_to_rgb(upright)


def _choose_reduction(image: Image.Image, side: int) -> None:
    """Have a JPEG decoded reduced, to twice `side` or more, and a HEIC photo from its thumbnail."""
    least = round(LEAST_OF_SIDE * side) if image.format == "HEIF" else 2 * side
    image.draft(None, (least, least))


def _turn_upright(image: Image.Image, orientation: int = 1) -> Image.Image:
    """Apply the EXIF orientation, or `orientation` if there is none. Loading has already turned a TIFF and
    removed its tag.
    """
    try:
        turn = _UPRIGHT.get(image.getexif().get(ORIENTATION, orientation))
    except Exception:  # a damaged EXIF block does not make the pixels unreadable
        turn = None
    return image.transpose(turn) if turn is not None else image


def _convert_to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I;16"):
        return _make_gray(np.asarray(image, np.float32) / 65535)
    if image.mode in ("I", "F"):
        return _make_gray(_scale_to_unit_range(np.asarray(image, np.float64)))
    if image.has_transparency_data:
        background = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(background, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _scale_to_unit_range(values: np.ndarray) -> np.ndarray:
    """Scale values of an unknown range to 0..1, by the smallest usual range that contains them all."""
    values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    largest = values.max()
    for top in (1.0, 255.0, 65535.0):
        if largest <= top:
            return values / top
    return values / largest


def _make_gray(unit: np.ndarray) -> Image.Image:
    return Image.fromarray(np.rint(np.clip(unit, 0, 1) * 255).astype(np.uint8)).convert("RGB")
