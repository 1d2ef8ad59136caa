"""The bytes of a photo as an upright RGB image: only formats of an allow-list, with a pixel limit.

Photo files may be hostile or damaged: whatever a decoder raises becomes an `UnreadableImage` with a reason.
`open_photo` decides in which process this module decodes a photo; nothing else calls it.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from fishermix_photos.vision.formats import RAW, UnreadableImage, check_installed, list_formats
from fishermix_photos.vision.limits import (
    PIXELS_PER_BYTE,
    check_opened,
    check_size,
    explain_limit,
)

LOG = logging.getLogger("fishermix_photos.vision")  # errors of decoders, at the level INFO
# Pillow warns of damaged metadata, which does not concern whoever looks for a photo, and of pictures that are
# too large, which is an error here.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\b")
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

# Formats of photos that Pillow decodes itself. Never PostScript and the like, whose decoders run programs.
PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
# Formats that are tried only if the first bytes show them: Pillow's name of each.
SNIFFED = {"AVIF": "AVIF", "HEIC": "HEIF", "JPEG XL": "JXL"}
LEAST_OF_SIDE = 0.9  # an embedded thumbnail serves if no side is shorter than this share of `side`
ORIENTATION = 0x0112  # the EXIF tag
ORIENTATION_OF_FLIP = {0: 1, 3: 3, 5: 8, 6: 6}  # how LibRaw says that the camera was turned
_HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode_bytes(data: bytes | Image.Image, max_pixels: int, side: int, page: int = 1) -> Image.Image:
    """The upright RGB image, at any cost. Others call `open_photo`."""
    try:
        return _decode(data, max_pixels, side, page)
    except Exception as error:
        raise explain_failure(error, max_pixels, is_empty=not data) from error


def explain_failure(error: Exception, max_pixels: int, is_empty: bool = False) -> UnreadableImage:
    """The `UnreadableImage` that says what a decoder's error means."""
    if isinstance(error, UnreadableImage):
        return error
    if isinstance(error, Image.DecompressionBombError):
        return UnreadableImage(f"the image is too large; {explain_limit(max_pixels)}", may_change=True)
    if isinstance(error, UnidentifiedImageError):
        problem = "the file is empty" if is_empty else "not an image, or its first bytes are damaged"
        return UnreadableImage(f"{problem}. Supported formats: {list_formats()}")
    if isinstance(error, MemoryError):
        reason = f"the image does not fit in memory; {explain_limit(max_pixels)}"
        return UnreadableImage(reason, may_change=True)
    LOG.info("a decoder reports: %r", error)  # for whoever reports a problem with a decoder
    # Decoders speak of their own code; a user can act on one thing only, that a file is not complete.
    text = str(error).lower()
    is_cut = any(words in text for words in ("truncat", "end of file", "not enough", "outside of file"))
    return UnreadableImage("the file is truncated" if is_cut else "the file is damaged")


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
        return "HEIC" if brands & _HEIF_BRANDS else ""
    if data[:2] == b"\xff\x0a" or data[:12] == b"\0\0\0\x0cJXL \r\n\x87\n":
        return "JPEG XL"
    if data.startswith((b"FUJIFILMCCD-RAW", b"IIRO", b"IIRS", b"MMOR", b"IIU\0")):
        return "RAW"
    if data[:4] in TIFF_HEADS:
        return "RAW" if data[8:10] == b"CR" else "TIFF"
    return ""


def open_file(data: bytes, kind: str) -> Image.Image:
    """The image, not yet decoded. Only the format that the first bytes show is tried."""
    if kind == "JPEG":  # not Image.open, whose limit is about the full size: a JPEG is decoded reduced
        return JpegImageFile(io.BytesIO(data))
    formats: tuple[str, ...] = PILLOW_FORMATS
    if kind in SNIFFED:
        check_installed(kind)
        _register(kind)
        formats = (SNIFFED[kind],)
    return Image.open(io.BytesIO(data), formats=formats)


@cache
def _register(kind: str) -> None:
    """Make a format known to Pillow."""
    if kind == "HEIC":
        from pillow_heif import register_heif_opener

        register_heif_opener(decode_threads=1, depth_images=False, aux_images=False)
    elif kind == "JPEG XL":
        import pillow_jxl  # noqa: F401 - registers itself


def _load(
    image: Image.Image, max_pixels: int, side: int = 0, orientation: int = 1, data: bytes | None = None
) -> Image.Image:
    """Decode an opened image; `data` is its file, `orientation` that of an image without EXIF."""
    full = image.size
    if side:
        # A JPEG is decoded reduced, to twice `side` or more, and a HEIC photo from its thumbnail.
        least = round(LEAST_OF_SIDE * side) if image.format == "HEIF" else 2 * side
        image.draft(None, (least, least))
    check_opened(image, full, max_pixels, data)
    image.load()
    upright = _turn_upright(image, orientation)
    if side and image.format in SNIFFED.values():
        # As large as a reduced JPEG: a worker sends a few pixels instead of all.
        upright = upright.reduce(max(1, min(upright.size) // (2 * side)))
    return _convert_to_rgb(upright)


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
        return _make_image(np.asarray(image, np.float32) / 65535).convert("RGB")
    if image.mode in ("I", "F"):
        return _make_image(_scale_to_unit_range(np.asarray(image, np.float64))).convert("RGB")
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


def _make_image(unit: np.ndarray) -> Image.Image:
    return Image.fromarray(np.rint(np.clip(unit, 0, 1) * 255).astype(np.uint8))


# RAW photos, by LibRaw: the preview that the camera embedded, or else the sensor's data


def open_raw(data: bytes) -> Any:
    """LibRaw's object for a RAW file; None if the bytes are no RAW file."""
    check_installed("RAW")
    import rawpy

    try:
        return rawpy.imread(io.BytesIO(data))
    except rawpy.LibRawFileUnsupportedError:
        return None


def read_preview(raw: Any) -> tuple[bytes, int] | None:
    """The embedded JPEG and the EXIF orientation of the photo; None if there is no JPEG."""
    import rawpy

    try:
        preview = raw.extract_thumb()
    except rawpy.LibRawError:
        return None
    if preview.format != rawpy.ThumbFormat.JPEG:
        return None
    return preview.data, ORIENTATION_OF_FLIP.get(raw.sizes.flip, 1)


def _decode_raw(data: bytes, max_pixels: int, side: int) -> Image.Image | None:
    """The preview of a RAW photo if it is large enough, else the sensor's data at half size; None if the
    bytes are no RAW photo.
    """
    if (raw := open_raw(data)) is None:
        return None
    with raw:
        width, height = raw.sizes.width, raw.sizes.height
        if (preview := read_preview(raw)) is not None:
            jpeg, orientation = preview
            with open_file(jpeg, "JPEG") as image:
                if min(image.size) >= side > 0 or max(image.size) >= max(width, height) // 2:
                    return _load(image, max_pixels, side, orientation, jpeg)
        check_size(width // 2, height // 2, max_pixels)
        return Image.fromarray(raw.postprocess(half_size=True, use_camera_wb=True))


# TIFF files. Their directories are read here first, because Pillow reads all of them up to the wanted page,
# with every value in them; they may overlap, and hold gigabytes in a small file.

MOST_PAGES = 500  # of a file
MOST_DIRECTORIES = 1000
MOST_TAGS = 1000  # of a directory
MOST_VALUES = 4_000_000  # in a directory: the offsets of a million tiles
UNQUESTIONED_PIXELS_OF_PAGES = 500_000_000  # in all; of more, their file must not be too small
REDUCED_PAGE = 1  # the bit of NewSubfileType that marks a thumbnail of another page
SUBFILE_TYPE, WIDTH, HEIGHT, BITS_PER_SAMPLE, MAKE = 254, 256, 257, 258, 271  # tags
PLANAR_CONFIGURATION, SEPARATE_PLANES, SUB_IFDS, DNG_VERSION = 284, 2, 330, 50706
SHORT_INTEGER = 3  # a type of values
TIFF_HEADS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # of the last two, positions have 8 bytes


class Directory(NamedTuple):
    """A directory of a TIFF file: its position, its tags, and what it says of the picture."""

    position: int
    tags: frozenset[int]
    pixels: int
    is_thumbnail: bool


def list_pages(data: bytes) -> list[Directory]:
    """The pages of a TIFF file that are not thumbnails of others, as many as one file may have."""
    directories = list(_walk_directories(data))
    pages = [page for page in directories if not page.is_thumbnail] or directories[:1]
    most = max(UNQUESTIONED_PIXELS_OF_PAGES, PIXELS_PER_BYTE["TIFF"] * len(data))
    total = np.cumsum([page.pixels for page in pages[:MOST_PAGES]], dtype=np.float64)
    return pages[: max(1, int(np.count_nonzero(total <= most)))]


def _walk_directories(data: bytes) -> Iterator[Directory]:
    """The directories of a TIFF file in their order; it ends where the file is damaged."""
    order = "<" if data[:2] == b"II" else ">"
    is_big = data[:4] in TIFF_HEADS[2:]
    pointer, count = (np.dtype(f"{order}u8"),) * 2 if is_big else map(np.dtype, (f"{order}u4", f"{order}u2"))
    value = f"V{pointer.itemsize}"
    entry = np.dtype([("tag", f"{order}u2"), ("type", f"{order}u2"), ("count", pointer), ("value", value)])
    seen: set[int] = set()
    following = 8 if is_big else 4  # where the position of the next directory is
    while following + pointer.itemsize <= len(data) and len(seen) < MOST_DIRECTORIES:
        position = int(np.frombuffer(data, pointer, 1, following)[0])
        start = position + count.itemsize
        if position in seen or position < 8 or start > len(data):
            return
        seen.add(position)
        n_tags = int(np.frombuffer(data, count, 1, position)[0])
        following = start + n_tags * entry.itemsize
        if following > len(data):
            return
        tags = np.frombuffer(data, entry, n_tags, start)
        if n_tags > MOST_TAGS or tags["count"].sum(dtype=np.float64) > max(MOST_VALUES, len(data)):
            raise UnreadableImage("a directory of the file has too many values")
        yield _describe_directory(position, tags, order)


def _describe_directory(position: int, tags: np.ndarray, order: str) -> Directory:
    def read(tag: int) -> int:
        for found in tags[tags["tag"] == tag][:1]:
            size = 2 if found["type"] == SHORT_INTEGER else 4
            return int.from_bytes(found["value"].tobytes()[:size], "little" if order == "<" else "big")
        return 0

    pixels, is_thumbnail = read(WIDTH) * read(HEIGHT), bool(read(SUBFILE_TYPE) & REDUCED_PAGE)
    return Directory(position, frozenset(tags["tag"].tolist()), pixels, is_thumbnail)


def select_page(data: bytes, page: int) -> bytes:
    """The same TIFF file, with this page (counted from 1) as its first."""
    pages = list_pages(data)
    if not pages:  # the file is damaged, as its decoder will say
        return data
    if page > len(pages):
        raise UnreadableImage(f"the file has no page {page}")
    start, size = (8, 8) if data[:4] in TIFF_HEADS[2:] else (4, 4)
    position = pages[page - 1].position.to_bytes(size, "little" if data[:2] == b"II" else "big")
    end = start + size
    return data if data[start:end] == position else b"".join((data[:start], position, data[end:]))


def looks_like_raw(data: bytes) -> bool | None:
    """Whether a TIFF file is a RAW photo: True for a DNG; None for what NEF, ARW and PEF have in common with
    the files of some photo editors.
    """
    first = next(_walk_directories(data), None)
    if first is None or DNG_VERSION in first.tags:
        return first is not None
    return None if {SUB_IFDS, MAKE} <= first.tags else False


def get_stored_size(image: Image.Image) -> tuple[int, int]:
    """The size of the page as stored; Pillow gives that of the page turned upright."""
    tags = image.tag_v2  # type: ignore[attr-defined]
    return tags[WIDTH], tags[HEIGHT]


def _decode_tiff(data: bytes, max_pixels: int, side: int, page: int) -> Image.Image:
    is_raw = looks_like_raw(data)
    if is_raw or (is_raw is None and RAW.is_installed):
        developed = _decode_raw(data, max_pixels, side)
        if developed is not None:
            return developed
    data = select_page(data, page)
    try:
        opened = open_file(data, "TIFF")
    except UnidentifiedImageError as error:
        reason = "the file is damaged, or a kind of TIFF that fishermix does not read"
        raise UnreadableImage(reason) from error
    with opened as image:
        if _has_deep_planes(image):
            raise UnreadableImage("fishermix does not read TIFF files with a plane of 16 bits for each color")
        return _load(image, max_pixels, side, data=data)


def _has_deep_planes(image: Image.Image) -> bool:
    """Whether a page stores each color apart, with more than 8 bits: Pillow mixes up the bytes of these."""
    tags = image.tag_v2  # type: ignore[attr-defined]
    bits = tags.get(BITS_PER_SAMPLE, (8,))
    return tags.get(PLANAR_CONFIGURATION) == SEPARATE_PLANES and len(bits) > 1 and max(bits) > 8
