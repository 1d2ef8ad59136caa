"""The bytes of a photo as an upright RGB image: only formats of an allow-list, with a pixel limit.

Photo files may be hostile or damaged: whatever a decoder raises becomes an `UnreadableImage` with a reason.
`open_photo` decides in which process this module decodes a photo; nothing else calls it.

A pixel limit alone does not bound the cost: a JPEG of 500 kB can have thousands of scans, each as large as
the picture, and a WebP of 3 kB can need gigabytes. So `check_opened` looks at bytes and headers first.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
from PIL import AvifImagePlugin, Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from fishermix_photos.photos.formats import RAW, UnreadableImage, check_installed, list_formats
from fishermix_photos.photos.tiff import (
    TIFF_HEADS,
    TIFF_PIXELS_PER_BYTE,
    has_deep_planes,
    looks_like_raw,
    select_page,
)

LOG = logging.getLogger("fishermix_photos.photos")  # errors of decoders, at the level INFO
# Pillow warns of damaged metadata, which does not concern whoever looks for a photo, and of pictures that are
# too large, which is an error here.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\b")
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

# Formats of photos that Pillow decodes itself. Never PostScript and the like, whose decoders run programs.
PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
# Formats that are tried only if the first bytes show them: Pillow's name of each.
SNIFFED = {"AVIF": "AVIF", "HEIC": "HEIF", "JPEG XL": "JXL"}
BYTES_PER_PIXEL = 8  # a decoded image, and a copy that is upright or in another mode
# Of decoders that keep more than the image; measured by tests/vision/hostile_pictures.py.
BYTES_PER_PIXEL_OF = {"WEBP": 24, "AVIF": 11, "JXL": 11, "HEIF": 10}
BYTES_PER_PIXEL_OF_RAW = 10  # the sensor's data, and the picture that LibRaw makes of it at half size
TILE_SIDE = 1024  # pixels; a larger image is converted to another mode in tiles
# Up to this many pixels, a picture may be as small a file as it likes: decoding it takes well under a second.
UNQUESTIONED_PIXELS = 16_000_000
# Above, a file with more pixels per byte is empty or an attack. Formats that are not here have no such limit.
PIXELS_PER_BYTE = {
    "JPEG": 1000,
    "MPO": 1000,
    "PNG": 2000,
    "WEBP": 1000,
    "GIF": 3000,
    "BMP": 200,
    "TIFF": TIFF_PIXELS_PER_BYTE,
}
LEAST_OF_SIDE = 0.8  # an embedded thumbnail serves if no side is shorter than this share of `side`
ORIENTATION = 0x0112  # the EXIF tag
ORIENTATION_OF_FLIP = {0: 1, 3: 3, 5: 8, 6: 6}  # how LibRaw says that the camera was turned
LARGEST_REDUCTION = 16  # a JPEG may have this many times the pixels it is decoded to
COEFFICIENT_BYTES = (
    2  # per pixel and color of a JPEG with several scans, which libjpeg keeps at its full size
)
MAX_SCANS = 64  # of a JPEG; encoders write about ten
MAX_SCANNED_PIXELS = 4_000_000_000  # pixels times scans: a few seconds
MAX_SEGMENTS = 10_000  # of a JPEG before its first scan
MAX_CHUNKS = 20_000  # of a PNG: 160 MB in the usual pieces of 8 kB; a worker decodes those with more
MOST_CHUNKS = 100_000  # above, a PNG is refused: Pillow keeps each that it does not know
MAX_METADATA_BYTES = 1_000_000  # Pillow takes seconds for each megabyte of EXIF
MAX_PPM_HEADER = 65_536  # bytes, with its comments; Pillow takes 0.2 s for each megabyte
MAX_PLAIN_BYTES = 1_000_000  # of a PPM in ASCII, which Pillow decodes number by number
TILE_WIDTH, TILE_LENGTH = 322, 323  # tags of a TIFF

_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_SCAN, _END = b"\xda", b"\xd9"
_FRAMES, _PROGRESSIVE = (b"\xc0", b"\xc1", b"\xc9"), (b"\xc2", b"\xca")
_PLAIN_PPM = (b"P1", b"P2", b"P3")
_PPM_COMMENT = re.compile(rb"#[^\r\n]*")
# Any marker of a JPEG but a stuffed byte, a restart and a filler. Not `\xff+` for fillers before a marker:
# from each byte of a megabyte of them, the search would look at all that follow.
_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd7\xff])", re.DOTALL)
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


Take = Callable[[int], None]  # waits until so many bytes of memory may be used


def decode_bytes(
    data: bytes | Image.Image, max_pixels: int, side: int, page: int = 1, take: Take = lambda _: None
) -> Image.Image:
    """The upright RGB image, at any cost. Others call `open_photo`.

    take : is called with the memory in bytes that the picture needs, before it is decoded
    """
    try:
        return _decode(data, max_pixels, side, page, take)
    except UnreadableImage:  # raised from itself, it would keep the file in memory until the next collection
        raise
    except Exception as error:
        raise explain_failure(error, max_pixels, is_empty=not data) from error


def explain_limit(max_pixels: int) -> str:
    return (
        f"the limit is {max_pixels:,} pixels. Use a smaller copy or, if you trust the image, raise "
        "max_pixels (on the command line: --max-pixels)"
    )


def explain_failure(error: Exception, max_pixels: int, is_empty: bool = False) -> UnreadableImage:
    """The `UnreadableImage` that says what a decoder's error means."""
    if isinstance(error, UnreadableImage):
        return error
    if isinstance(error, Image.DecompressionBombError):
        return UnreadableImage(
            f"the image is too large; {explain_limit(max_pixels)}", may_change=True, code="too_large"
        )
    if isinstance(error, UnidentifiedImageError):
        problem = "the file is empty" if is_empty else "not an image, or its first bytes are damaged"
        code = "empty" if is_empty else "not_an_image"
        return UnreadableImage(f"{problem}. Supported formats: {list_formats()}", code=code)
    if isinstance(error, MemoryError):
        reason = f"the image does not fit in memory; {explain_limit(max_pixels)}"
        return UnreadableImage(reason, may_change=True, code="too_large")
    LOG.info("a decoder reports: %r", error)  # for whoever reports a problem with a decoder
    # Decoders speak of their own code; a user can act on one thing only, that a file is not complete.
    text = str(error).lower()
    is_cut = any(words in text for words in ("truncat", "end of file", "not enough", "outside of file"))
    return UnreadableImage("the file is truncated" if is_cut else "the file is damaged")


def _decode(data: bytes | Image.Image, max_pixels: int, side: int, page: int, take: Take) -> Image.Image:
    if isinstance(data, Image.Image):
        return _load(data, max_pixels, take)
    if not isinstance(data, bytes):
        raise UnreadableImage(
            f"{type(data).__name__} is neither a path nor bytes nor a PIL image", code="wrong_type"
        )
    kind = sniff_format(data)
    if kind == "RAW":
        if (developed := _decode_raw(data, max_pixels, take, side)) is None:
            raise UnreadableImage("LibRaw does not read this RAW photo, or it is damaged")
        return developed
    if kind == "TIFF":
        return _decode_tiff(data, max_pixels, take, side, page)
    if kind == "JPEG XL":
        take(max_pixels * BYTES_PER_PIXEL)  # opening it decodes it
    with open_file(data, kind) as image:
        return _load(image, max_pixels, take, side, data=data)


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
    if data[:1] == b"P":
        _check_ppm_header(data)
    if data.startswith(_PNG) and sum(1 for _ in list_png_chunks(data, MOST_CHUNKS)) > MOST_CHUNKS:
        raise UnreadableImage(f"it is a PNG of more than {MOST_CHUNKS:,} chunks", code="too_costly")
    return Image.open(io.BytesIO(data), formats=formats)


def _check_ppm_header(data: bytes) -> None:
    """Raise if the words before the pixels of a PPM (kind, width, height, mostly a maximum) end too late."""
    words = _PPM_COMMENT.sub(b" ", data[:MAX_PPM_HEADER]).split()
    if len(data) > MAX_PPM_HEADER and len(words) < (3 if words[0] in (b"P1", b"P4") else 4):
        raise UnreadableImage(
            f"it is a PPM with a header of more than {MAX_PPM_HEADER:,} bytes", code="too_costly"
        )


@cache
def _register(kind: str) -> None:
    """Make a format known to Pillow."""
    if kind == "HEIC":
        from pillow_heif import register_heif_opener

        register_heif_opener(decode_threads=1, depth_images=False, aux_images=False)
    elif kind == "JPEG XL":
        from pillow_jxl import JpegXLImagePlugin  # registers itself

        JpegXLImagePlugin.DECODE_THREADS = 0
    elif kind == "AVIF":
        AvifImagePlugin.DEFAULT_MAX_THREADS = 1


def _load(
    image: Image.Image,
    max_pixels: int,
    take: Take,
    side: int = 0,
    orientation: int = 1,
    data: bytes | None = None,
) -> Image.Image:
    """Decode an opened image; `data` is its file, `orientation` that of an image without EXIF."""
    full = image.size
    if side:
        # A JPEG is decoded reduced, to twice `side` or more, and a HEIC photo from its thumbnail.
        least = round(LEAST_OF_SIDE * side) if image.format == "HEIF" else 2 * side
        image.draft(None, (least, least))
    take(check_opened(image, full, max_pixels, data))
    image.load()
    turn, is_of_package = _find_turn(image, orientation), image.format in SNIFFED.values()
    converted = _convert_to_rgb(image)
    if data is not None and converted is not image:
        image.close()  # there are never more than two copies
    upright = converted if turn is None else converted.transpose(turn)
    if side and is_of_package:
        # As large as a reduced JPEG: a worker sends a few pixels instead of all.
        upright = upright.reduce(max(1, min(upright.size) // (2 * side)))
    return upright


def _find_turn(image: Image.Image, orientation: int = 1) -> Image.Transpose | None:
    """What turns an image upright: its EXIF orientation, or `orientation` if there is none. Loading has
    already turned a TIFF and removed its tag.
    """
    try:
        return _UPRIGHT.get(image.getexif().get(ORIENTATION, orientation))
    except Exception:  # a damaged EXIF block does not make the pixels unreadable
        return None


def _convert_to_rgb(image: Image.Image) -> Image.Image:
    """The same image in RGB, on white; the copies on the way there are copies of tiles."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    largest = 0.0
    if image.mode in ("I", "F"):
        largest = max(_read_numbers(image.crop(box)).max() for box in _list_tiles(*image.size))
    converted = Image.new("RGB", image.size)
    for box in _list_tiles(*image.size):
        converted.paste(_convert_tile(image.crop(box), largest), box)
    return converted


def _list_tiles(width: int, height: int) -> Iterator[tuple[int, int, int, int]]:
    for top in range(0, height, TILE_SIDE):
        for left in range(0, width, TILE_SIDE):
            yield left, top, min(left + TILE_SIDE, width), min(top + TILE_SIDE, height)


def _convert_tile(tile: Image.Image, largest: float) -> Image.Image:
    """largest : the largest value of the whole image, if its values are of an unknown range"""
    if tile.mode.startswith("I;16"):
        return _make_image(np.asarray(tile, np.float32) / 65535).convert("RGB")
    if tile.mode in ("I", "F"):
        # The smallest usual range that contains them all.
        top = next((top for top in (1.0, 255.0, 65535.0) if largest <= top), largest)
        return _make_image(_read_numbers(tile) / top).convert("RGB")
    if tile.has_transparency_data:
        background = Image.new("RGBA", tile.size, "white")
        return Image.alpha_composite(background, tile.convert("RGBA")).convert("RGB")
    return tile.convert("RGB")


def _read_numbers(image: Image.Image) -> np.ndarray:
    return np.nan_to_num(np.asarray(image, np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _make_image(unit: np.ndarray) -> Image.Image:
    return Image.fromarray(np.rint(np.clip(unit, 0, 1) * 255).astype(np.uint8))


# The structure of a file


def is_bounded(data: bytes) -> bool:
    """Whether the structure of a file bounds the cost of decoding it, so that no worker is needed: that of an
    ordinary PNG, or of a JPEG with one scan. For several scans, libjpeg keeps all coefficients in memory.
    """
    if data.startswith(_PNG):
        chunks = list(list_png_chunks(data))
        metadata = sum(content.stop - content.start for kind, content in chunks if kind != b"IDAT")
        profiles = sum(kind == b"iCCP" for kind, _ in chunks)  # Pillow decompresses each
        return len(chunks) <= MAX_CHUNKS and profiles <= 1 and metadata <= MAX_METADATA_BYTES
    if not data.startswith(_JPEG):
        return not data
    colors = 0
    for kind, start, _ in islice(_list_markers(data), MAX_SEGMENTS):
        if kind in _PROGRESSIVE:
            return False
        if kind in _FRAMES:
            colors = int.from_bytes(data[start + 7 : start + 8])
        elif start > MAX_METADATA_BYTES:
            return False
        elif kind == _SCAN:
            return 0 < colors <= int.from_bytes(data[start + 2 : start + 3])  # 0: a frame of another kind
    return False


def check_opened(
    image: Image.Image, full: tuple[int, int], max_pixels: int, data: bytes | None = None
) -> int:
    """The memory in bytes that decoding an opened picture takes. Raises if that or the time is too much, or
    the header does not fit the file.

    full : the size in the file, before a reduction
    data : the file; None if it is not known
    """
    if data is not None:
        check_proportion(image, full, len(data))
        if data[:2] in _PLAIN_PPM and len(data) > MAX_PLAIN_BYTES:
            reason = f"it is a PPM in ASCII of more than {MAX_PLAIN_BYTES:,} bytes. Convert it to PNG"
            raise UnreadableImage(reason, code="too_costly")
    width, height = image.size
    # Pillow only warns of a decompression bomb below twice its own limit; here it is an error.
    limit = min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
    pixels = full[0] * full[1]
    cost = width * height * BYTES_PER_PIXEL_OF.get(image.format or "", BYTES_PER_PIXEL)
    if data is not None and data.startswith(_JPEG) and not is_bounded(data):
        cost += pixels * COEFFICIENT_BYTES * len(image.getbands())
        most_scans = min(MAX_SCANS, MAX_SCANNED_PIXELS // max(1, pixels))
        if count_scans(data) > most_scans:
            raise UnreadableImage(
                f"it has more than {most_scans} scans; decoding it would take too long", code="too_costly"
            )
    needed = max(cost, pixels // LARGEST_REDUCTION * BYTES_PER_PIXEL)
    if needed > limit * BYTES_PER_PIXEL:
        check_size(*full, limit * BYTES_PER_PIXEL * pixels // needed)
    if width * height == 0:
        raise UnreadableImage("the image has no pixels")
    return cost


def check_size(width: int, height: int, limit: int) -> None:
    """Raise if a picture has more pixels than the limit."""
    if width * height > limit:
        reason = f"it has {width} x {height} pixels; {explain_limit(limit)}"
        raise UnreadableImage(reason, may_change=True, code="too_large")


def check_proportion(image: Image.Image, full: tuple[int, int], n_bytes: int) -> None:
    """Raise if the header of an opened picture of the size `full` does not fit a file of `n_bytes`."""
    width, height = full
    pixels, limit = width * height, PIXELS_PER_BYTE.get(image.format or "")
    if limit and pixels > max(UNQUESTIONED_PIXELS, limit * n_bytes):
        raise UnreadableImage(
            f"{n_bytes:,} bytes are too few for {width} x {height} pixels", code="wrong_proportion"
        )
    tags = getattr(image, "tag_v2", {})
    tile_width, tile_length = tags.get(TILE_WIDTH, 0), tags.get(TILE_LENGTH, 0)
    if not all(isinstance(side, int) for side in (tile_width, tile_length)):
        raise UnreadableImage("the size of its tiles is damaged")
    if tile_width * tile_length > max(UNQUESTIONED_PIXELS, 2 * pixels):
        reason = f"its tiles of {tile_width} x {tile_length} pixels are larger than the picture"
        raise UnreadableImage(reason, code="wrong_proportion")


def count_scans(data: bytes) -> int:
    """The number of scans of a JPEG up to its end; counting stops above `MAX_SCANS`."""
    scans = (kind for kind, _, _ in _list_markers(data) if kind == _SCAN)
    return sum(1 for _ in islice(scans, MAX_SCANS + 1))


def _list_markers(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The markers of a JPEG, in order, each with the start and the end of its segment.

    The content of a segment is skipped: metadata may contain other pictures.
    """
    position = 2
    while (found := _MARKER.search(data, position)) and (kind := found[1]) != _END:
        start = position = found.end()
        if kind != b"\xd8":
            position += int.from_bytes(data[start : start + 2])
        yield kind, start, position


def list_png_chunks(data: bytes, most: int = MAX_CHUNKS) -> Iterator[tuple[bytes, slice]]:
    """The kind and the content of each chunk of a PNG, up to one more than `most`."""
    position = len(_PNG)
    for _ in range(most + 1):
        if position >= len(data):
            return
        start, length = position + 8, int.from_bytes(data[position : position + 4])
        yield data[position + 4 : start], slice(start, start + length)
        position = start + length + 4


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


def _decode_raw(data: bytes, max_pixels: int, take: Take, side: int) -> Image.Image | None:
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
                    return _load(image, max_pixels, take, side, orientation, jpeg)
        check_size(width, height, max_pixels * BYTES_PER_PIXEL // BYTES_PER_PIXEL_OF_RAW)
        take(width * height * BYTES_PER_PIXEL_OF_RAW)
        return Image.fromarray(raw.postprocess(half_size=True, use_camera_wb=True))


# TIFF files


def _decode_tiff(data: bytes, max_pixels: int, take: Take, side: int, page: int) -> Image.Image:
    is_raw = looks_like_raw(data)
    if is_raw or (is_raw is None and RAW.is_installed):
        developed = _decode_raw(data, max_pixels, take, side)
        if developed is not None:
            return developed
    data = select_page(data, page)
    try:
        opened = open_file(data, "TIFF")
    except UnidentifiedImageError as error:
        reason = "the file is damaged, or a kind of TIFF that fishermix does not read"
        raise UnreadableImage(reason, code="unsupported") from error
    with opened as image:
        if has_deep_planes(image):
            reason = "fishermix does not read TIFF files with a plane of 16 bits for each color"
            raise UnreadableImage(reason, code="unsupported")
        return _load(image, max_pixels, take, side, data=data)
