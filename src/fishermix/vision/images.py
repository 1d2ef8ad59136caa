"""`open_photo`, the one function that opens photos: an allow-list of formats, a pixel limit, upright RGB.

Photo files may be hostile or damaged: whatever a decoder raises becomes an `UnreadableImage` with a reason.
So does a photo that takes too long or needs too much memory (see `picture_cost` and `worker`).
"""

from __future__ import annotations

import io
import logging
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from fishermix.errors import FishermixError
from fishermix.extras import install_command
from fishermix.vision.formats import (
    RAW,
    VIDEO,
    PictureProblem,
    explain_missing,
    find_format,
    get_format,
    list_formats,
    sniff_format,
    split_part,
)
from fishermix.vision.picture_cost import find_disproportion, find_excess, is_bounded
from fishermix.vision.remarks import collect_remarks
from fishermix.vision.tiff import (
    get_stored_size,
    has_deep_planes,
    list_pages,
    looks_like_raw,
    read_page,
)
from fishermix.vision.worker import NetworkBytes, WorkerFailed, decode_in_worker

LOG = logging.getLogger("fishermix.vision")  # remarks of decoders, at the level INFO: not shown by default
ImageSource = str | os.PathLike | bytes | Image.Image

# Formats of photos that Pillow decodes itself. Never PostScript and the like, whose decoders run programs.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
# Formats that are tried only if the first bytes show them: Pillow's name of each.
SNIFFED = {"AVIF": "AVIF", "HEIC": "HEIF", "JPEG XL": "JXL"}
LARGEST_REDUCTION = 16  # a JPEG may have this many times the pixels it is decoded to
COEFFICIENT_BYTES = 6  # per pixel of a progressive JPEG, which libjpeg keeps whole at its full size
LEAST_OF_SIDE = 0.9  # an embedded thumbnail serves if no side is shorter than this share of `side`
BYTES_PER_PIXEL = 16  # a decoded image, its copy in another mode, and a transposed copy
SHARE_OF_MEMORY = 1 / 16  # per image, because several are decoded at once
PIXELS_WITHOUT_KNOWN_MEMORY = 64_000_000  # 1 GB at 16 bytes per pixel; cameras stay below it
FILE_BYTES_PER_PIXEL = 8  # of an uncompressed file with four channels of 16 bits
HEADER_BYTES = 1 << 20  # what an uncompressed file may hold besides its pixels
ORIENTATION = 0x0112  # the EXIF tag
_chosen_max_pixels: int | None = None
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnreadableImage(FishermixError):
    """An image that cannot be decoded; `reason` says why, `name` which image it is.

    `may_change` : whether the same bytes may be readable later: with a higher limit, or another package
    """

    def __init__(self, reason: str, name: str = "the image", may_change: bool = False):
        super().__init__(f"Cannot read {name}: {reason}.")
        self.reason, self.may_change = reason, may_change


def memory_in_bytes() -> int | None:
    """The memory available to this process: RAM, or the container's limit if less; None if unknown."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        return min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return memory


def set_default_max_pixels(max_pixels: int) -> None:
    """Set the default pixel limit of this process."""
    global _chosen_max_pixels
    _chosen_max_pixels = allow_pixels(max_pixels)


def default_max_pixels() -> int:
    """The default pixel limit: what `set_default_max_pixels` chose, or else one image may take a sixteenth of
    the memory, at 16 bytes per pixel.
    """
    if _chosen_max_pixels is not None:
        return _chosen_max_pixels
    memory = memory_in_bytes()
    return int(memory * SHARE_OF_MEMORY / BYTES_PER_PIXEL) if memory else PIXELS_WITHOUT_KNOWN_MEMORY


def allow_pixels(max_pixels: int | None) -> int:
    """The pixel limit that `max_pixels` means (None: the default).

    A limit above Pillow's own raises that one too, for the whole process.
    """
    if max_pixels is None:
        return default_max_pixels()
    if max_pixels < 1:
        raise FishermixError(f"max_pixels must be at least 1, not {max_pixels}.")
    if Image.MAX_IMAGE_PIXELS and max_pixels > Image.MAX_IMAGE_PIXELS:
        Image.MAX_IMAGE_PIXELS = max_pixels
    return max_pixels


def read_bytes(path: str | os.PathLike, max_pixels: int) -> bytes:
    """The content of a regular file, unless it is larger than any image of `max_pixels` pixels."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableImage("it is a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file")
        if status.st_size > max_pixels * FILE_BYTES_PER_PIXEL + HEADER_BYTES:
            raise UnreadableImage(
                f"{status.st_size:,} bytes are too many for an image; {_explain_limit(max_pixels)}",
                may_change=True,
            )
        return Path(path).read_bytes()
    except OSError as error:
        raise UnreadableImage(error.strerror or str(error)) from error


def open_photo(photo: ImageSource, max_pixels: int | None = None, side: int = 0) -> Image.Image:
    """The upright RGB image of a path, bytes or a PIL image; of an animation, the first frame.

    An image that would take more than `max_pixels` pixels in memory (None: the default) is rejected before it
    is decoded. A JPEG much larger than `side` x `side` pixels is decoded at a half, a quarter or an eighth of
    its size, but never below twice `side`; of a HEIC photo, a thumbnail of about `side` serves, and of a RAW
    photo the preview; other HEIC, AVIF and JPEG XL photos are reduced after they are decoded. This is several
    times faster, and deterministic. A path may name a part of a file: `clip.mp4#t=12.5` is a frame,
    `scan.tif#page=2` a page. The message of an `UnreadableImage` names the file if `photo` is a path.

    Parameters
    ----------
    photo : path, bytes or PIL image
        The photo.
    max_pixels : int, optional
        Reject larger photos. Default: depends on the memory.
    side : int
        A JPEG much larger than side x side pixels is decoded at a reduced size. 0: never.
    """
    limit = default_max_pixels() if max_pixels is None else max_pixels
    if not isinstance(photo, str | os.PathLike):
        return _decode_within_limits(photo, limit, side, "a photo")
    try:
        file, part, number = split_part(os.fspath(photo))
        if find_format(file) is VIDEO:
            return _decode_frame(file, number, limit)
        page = int(number) if part else 1
        return _decode_within_limits(read_bytes(file, limit), limit, side, os.fspath(photo), page)
    except UnreadableImage as error:
        raise UnreadableImage(error.reason, os.fspath(photo), error.may_change) from error


def _decode_within_limits(
    data: bytes | Image.Image, max_pixels: int, side: int, name: str, page: int = 1
) -> Image.Image:
    """Decode here or, if the cost is unknown or the photo is from the network, in a worker; log what the
    decoder remarks on the photo.
    """
    if isinstance(data, bytes) and (excess := find_excess(data)):
        raise UnreadableImage(excess)
    try:
        from_network = isinstance(data, NetworkBytes)
        if isinstance(data, bytes) and sys.executable and (from_network or not is_bounded(data)):
            image, remarks = decode_in_worker(data, max_pixels, side, page)
        else:
            image, remarks = decode_bytes(data, max_pixels, side, page)
    except WorkerFailed as error:
        raise UnreadableImage(str(error), may_change=error.may_change) from error
    for remark in remarks:
        LOG.info("%s: %s", name, remark)
    return image


def decode_bytes(
    data: bytes | Image.Image, max_pixels: int, side: int, page: int = 1
) -> tuple[Image.Image, list[str]]:
    """The upright RGB image and the remarks of its decoder, at any cost. Others call `open_photo`."""
    with collect_remarks() as remarks:
        return _decode(data, max_pixels, side, page), remarks


def open_header(path: str | os.PathLike) -> tuple[tuple[int, int], Image.Exif]:
    """The size of a photo before it is turned upright, and its EXIF; the pixels are not decoded."""
    data = read_bytes(path, default_max_pixels())
    kind = sniff_format(data)
    may_be_raw = kind == "RAW" or (kind == "TIFF" and looks_like_raw(data) is not False and RAW.is_installed)
    if may_be_raw and (header := _open_raw_header(data)) is not None:
        return header
    with _open_file(data, kind) as image:
        size = get_stored_size(image) if image.format == "TIFF" else image.size
        return size, _read_exif(image)


def check_header(path: str | os.PathLike) -> None:
    """Raise `UnreadableImage` if the first bytes of a file are not those of a photo. Videos pass."""
    if find_format(os.fspath(path)) is VIDEO:
        return
    try:
        with _explain_errors(b"photo", default_max_pixels()):
            open_header(path)
    except UnreadableImage as error:
        raise UnreadableImage(error.reason, os.fspath(path), error.may_change) from error


def _read_exif(image: Image.Image) -> Image.Exif:
    """The EXIF of an opened image, with the blocks that Pillow reads from the file only when asked."""
    exif = image.getexif()
    for block in (ExifTags.IFD.Exif, ExifTags.IFD.GPSInfo):
        with suppress(Exception):  # a damaged block is as good as none
            exif.get_ifd(block)
    return exif


def _open_raw_header(data: bytes) -> tuple[tuple[int, int], Image.Exif] | None:
    """The size of the sensor, and the EXIF of a RAW file that is a TIFF file or else of its preview."""
    from fishermix.vision.raw import open_raw, read_preview

    _check_installed("RAW")
    if (raw := open_raw(data)) is None:
        return None
    with raw:
        exif = Image.Exif()
        if data[:2] in (b"II", b"MM") and data[2:4] in (b"*\0", b"\0*"):
            exif.load(data)
        elif (preview := read_preview(raw)) is not None:
            with _open_file(preview[0], "JPEG") as image:
                exif = _read_exif(image)
        return (raw.sizes.width, raw.sizes.height), exif


def list_parts(path: str | os.PathLike, max_pixels: int | None = None) -> list[str]:
    """List the parts of a file: distinct frames of a video, a few seconds apart, or the pages of a TIFF file.

    Parameters
    ----------
    path : str or path
        The file.
    max_pixels : int, optional
        Reject images with more pixels than this. Default: depends on the memory of the machine.

    Returns
    -------
    parts : list of str
        The names of the parts. The first is the file itself; the others look like `clip.mp4#t=12.5` (seconds)
        and `scan.tif#page=2`. Any other file, and a damaged one, has one part.
    """
    try:
        with collect_remarks():
            return _list_parts(path, max_pixels)
    except UnreadableImage:
        return [os.fspath(path)]


def _list_parts(path: str | os.PathLike, max_pixels: int | None) -> list[str]:
    name, found = os.fspath(path), find_format(os.fspath(path))
    limit = default_max_pixels() if max_pixels is None else max_pixels
    if found is VIDEO:
        from fishermix.vision.video import list_frame_times

        with _explain_errors(b"video", limit):
            _check_installed("video")
            return [name, *(f"{name}#t={time:g}" for time in list_frame_times(path, limit)[1:])]
    if found is not None and found.name == "TIFF":
        with _explain_errors(b"TIFF", limit), _open(read_bytes(path, limit), ("TIFF",)) as image:
            return [name, *(f"{name}#page={page}" for page in range(2, len(list_pages(image)) + 1))]
    return [name]


def _decode_frame(path: str, time: float, max_pixels: int) -> Image.Image:
    from fishermix.vision.video import read_frame

    with _explain_errors(b"video", max_pixels):
        _check_installed("video")
        return read_frame(path, time, max_pixels)


def _decode(data: bytes | Image.Image, max_pixels: int, side: int, page: int = 1) -> Image.Image:
    with _explain_errors(data, max_pixels):
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
        with _open_file(data, kind) as image:
            _check_proportion(image, len(data))
            return _load(image, max_pixels, side)


def _check_proportion(image: Image.Image, n_bytes: int) -> None:
    if disproportion := find_disproportion(image, n_bytes):
        raise UnreadableImage(disproportion)


def _open_file(data: bytes, kind: str) -> Image.Image:
    """The image, not yet decoded. Only the format that the first bytes show is tried."""
    if kind == "JPEG":  # not Image.open, whose limit is about the full size: a JPEG is decoded reduced
        return JpegImageFile(io.BytesIO(data))
    if kind in SNIFFED:
        _check_installed(kind)
        _register(kind)
        return _open(data, (SNIFFED[kind],))
    return _open(data, FORMATS)


def _open(data: bytes, formats: tuple[str, ...]) -> Image.Image:
    return Image.open(io.BytesIO(data), formats=formats)


@cache
def _register(kind: str) -> None:
    """Make a format known to Pillow."""
    if kind == "HEIC":
        from pillow_heif import register_heif_opener

        register_heif_opener(decode_threads=1, depth_images=False, aux_images=False)
    elif kind == "JPEG XL":
        import pillow_jxl  # noqa: F401 - registers itself


def _check_installed(kind: str) -> None:
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

    _check_installed("RAW")
    raw = open_raw(data)
    if raw is None:
        return None
    with raw:
        width, height = raw.sizes.width, raw.sizes.height
        if (preview := read_preview(raw)) is not None:
            with _open_file(preview[0], "JPEG") as image:
                if min(image.size) >= side > 0 or max(image.size) >= max(width, height) // 2:
                    return _load(image, max_pixels, side, orientation=preview[1])
        _check_size(width // 2, height // 2, max_pixels)
        return Image.fromarray(develop(raw))


def _decode_tiff(data: bytes, max_pixels: int, side: int, page: int) -> Image.Image:
    is_raw = looks_like_raw(data)
    if is_raw or (is_raw is None and RAW.is_installed):
        developed = _decode_raw(data, max_pixels, side)
        if developed is not None:
            return developed
    try:
        opened = _open(data, ("TIFF",))
    except UnidentifiedImageError:
        return _decode_other_tiff(data, max_pixels, page)
    with opened as image:
        pages = list_pages(image, page)
        if len(pages) < page:
            raise UnreadableImage(f"the file has no page {page}")
        image.seek(pages[page - 1])
        _check_proportion(image, len(data))
        if not has_deep_planes(image):
            return _load(image, max_pixels, side)
    return _decode_other_tiff(data, max_pixels, page)


def _decode_other_tiff(data: bytes, max_pixels: int, page: int) -> Image.Image:
    """A TIFF file that Pillow does not read, or not correctly."""
    try:
        values = read_page(data, page, lambda width, height: _check_size(width, height, max_pixels))
    except ImportError as error:
        reason = f"this kind of TIFF needs another package: {install_command('tiff')}"
        raise UnreadableImage(reason, may_change=True) from error
    unit = _scale_to_unit_range(values.astype(np.float64))
    return Image.fromarray(np.rint(np.clip(unit, 0, 1) * 255).astype(np.uint8))


@contextmanager
def _explain_errors(data: bytes | Image.Image, max_pixels: int) -> Iterator[None]:
    """Turn whatever a decoder raises into an `UnreadableImage` with a reason."""
    try:
        yield
    except UnreadableImage:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise UnreadableImage(
            f"the image is too large; {_explain_limit(max_pixels)}", may_change=True
        ) from error
    except UnidentifiedImageError as error:
        problem = "the file is empty" if not data else "not an image, or its first bytes are damaged"
        raise UnreadableImage(f"{problem}. Supported formats: {list_formats()}") from error
    except MemoryError as error:
        raise UnreadableImage(
            f"the image does not fit in memory; {_explain_limit(max_pixels)}", may_change=True
        ) from error
    except PictureProblem as error:
        raise UnreadableImage(str(error)) from error
    except Exception as error:
        LOG.info("a decoder reports: %r", error)  # for whoever reports a problem with a decoder
        raise UnreadableImage(_describe_damage(error)) from error


def _describe_damage(error: Exception) -> str:
    """Decoders speak of their own code; a user can act on one thing only, that a file is not complete."""
    text = str(error).lower()
    is_cut = any(words in text for words in ("truncat", "end of file", "not enough", "outside of file"))
    return "the file is truncated" if is_cut else "the file is damaged"


def _load(image: Image.Image, max_pixels: int, side: int = 0, orientation: int = 1) -> Image.Image:
    """Decode an opened image; `orientation` is that of an image without EXIF."""
    full = image.size
    if side:
        _choose_reduction(image, side)
    _check_pixels(image, full, max_pixels)
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


def _explain_limit(max_pixels: int) -> str:
    return (
        f"the limit is {max_pixels:,} pixels. Use a smaller copy or, if you trust the image, raise "
        "max_pixels (on the command line: --max-pixels)"
    )


def _check_size(width: int, height: int, limit: int) -> None:
    if width * height > limit:
        reason = f"it has {width} x {height} pixels; {_explain_limit(limit)}"
        raise UnreadableImage(reason, may_change=True)


def _check_pixels(image: Image.Image, full: tuple[int, int], max_pixels: int) -> None:
    """Raise if decoding takes too much memory; `full` is the size in the file, before a reduction."""
    width, height = image.size
    # Pillow only warns of a decompression bomb below twice its own limit; here it is an error.
    limit = min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
    pixels = full[0] * full[1]
    needed = max(width * height, pixels // LARGEST_REDUCTION)
    if image.info.get("progressive"):
        needed = max(needed, pixels * COEFFICIENT_BYTES // BYTES_PER_PIXEL)
    if needed > limit:
        _check_size(*full, limit)
    if width * height == 0:
        raise UnreadableImage("the image has no pixels")


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
