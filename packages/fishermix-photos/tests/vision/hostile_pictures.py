"""About a hundred small files that ask a decoder for gigabytes or minutes, and a measure of what each costs.

    python packages/fishermix-photos/tests/vision/hostile_pictures.py [--threads 4] [part of a name ...]

opens each file in a process of its own, in several threads at once, and prints its peak of memory, workers
included, and its seconds. It fails if one file takes more than 1 GB or, per picture, 30 s.
"""

from __future__ import annotations

import argparse
import io
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from PIL import Image

MOST_BYTES, MOST_SECONDS = 1_000_000_000, 30.0
MEGA = 1_000_000
Make = Callable[[], bytes]


def encode(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def flat(mode: str, megapixels: float, kind: str, **options: object) -> bytes:
    """A picture of one color, twice as wide as it is high."""
    height = int((megapixels * MEGA / 2) ** 0.5)
    return encode(Image.new(mode, (2 * height, height)), kind, **options)


# PNG, written by hand: Pillow writes neither every depth nor bombs


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, depth: int, color: int, *more: bytes, interlaced: int = 0) -> bytes:
    """A PNG of zeros; `more` are chunks before its pixels."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    row = (width * channels * depth + 7) // 8 + 1
    packed = zlib.compressobj(9)
    pixels = b"".join(packed.compress(bytes(row)) for _ in range(height)) + packed.flush()
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)
    palette = chunk(b"PLTE", bytes(3 * 2)) if color == 3 else b""
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            palette,
            *more,
            chunk(b"IDAT", pixels),
            chunk(b"IEND", b""),
        )
    )


def bomb(megabytes: int) -> bytes:
    return zlib.compress(bytes(megabytes * MEGA), 9)


def list_png() -> Iterator[tuple[str, Make]]:
    colors = {0: "gray", 2: "RGB", 3: "palette", 4: "gray alpha", 6: "RGBA"}
    for color, name in colors.items():
        for depth in (1, 8, 16):
            if (color == 3 and depth == 16) or (color not in (0, 3) and depth == 1):
                continue
            yield f"png {name} {depth} bit", lambda c=color, d=depth: png(8100, 8100, d, c)
    yield "png interlaced", lambda: png(9000, 9000, 8, 2, interlaced=1)
    yield "png transparent color", lambda: png(8100, 8100, 8, 2, chunk(b"tRNS", bytes(6)))
    yield "png transparent palette", lambda: png(8100, 8100, 8, 3, chunk(b"tRNS", b"\0"))
    yield "png transparent gray", lambda: png(8100, 8100, 8, 0, chunk(b"tRNS", bytes(2)))
    yield "png turned", lambda: png(8100, 8100, 8, 2, chunk(b"eXIf", make_exif(6)))
    yield "png turned RGBA", lambda: png(8100, 8100, 8, 6, chunk(b"eXIf", make_exif(6)))
    yield "png line", lambda: png(80 * MEGA, 1, 8, 2)
    yield "png column", lambda: png(1, 3 * MEGA, 8, 2)
    yield "png too large", lambda: png(200, 200, 8, 2)[:16] + struct.pack(">II", 60_000, 60_000) + bytes(100)
    yield "png text bomb", lambda: png(9, 9, 8, 2, *[chunk(b"zTXt", b"a\0\0" + bomb(60)) for _ in range(20)])
    yield "png profile bomb", lambda: png(9, 9, 8, 2, chunk(b"iCCP", b"a\0\0" + bomb(500)))
    yield "png many chunks", lambda: png(9, 9, 8, 2, chunk(b"abCd", b"") * 2 * MEGA)
    yield "png large exif", lambda: png(9, 9, 8, 2, chunk(b"eXIf", make_exif(1, 5 * MEGA)))
    yield (
        "png frames",
        lambda: encode(
            Image.new("RGB", (3000, 3000)),
            "PNG",
            save_all=True,
            append_images=[Image.new("RGB", (3000, 3000), 9)] * 9,
        ),
    )


def make_exif(orientation: int, fractions: int = 0) -> bytes:
    tags = struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0)
    tags += struct.pack("<HHII", 0x9000, 5, fractions, 38)
    return b"II*\0\x08\0\0\0" + struct.pack("<H", 2) + tags + bytes(4) + b"\1\0\0\0\3\0\0\0" * fractions


# JPEG


def jpeg(mode: str, megapixels: float, **options: object) -> bytes:
    return flat(mode, megapixels, "JPEG", **options)


def add_scans(data: bytes, number: int) -> bytes:
    start, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    return data[:end] + data[start:end] * number + data[end:]


def enlarge(data: bytes, width: int, height: int, frame: bytes) -> bytes:
    """A JPEG whose header promises another size."""
    start = data.index(frame) + 5
    return data[:start] + struct.pack(">HH", height, width) + data[start + 4 :]


def list_jpeg() -> Iterator[tuple[str, Make]]:
    for mode in ("L", "RGB", "CMYK"):
        yield f"jpeg {mode}", lambda m=mode: jpeg(m, 90)
        yield f"jpeg progressive {mode}", lambda m=mode: jpeg(m, 60, progressive=True)
        yield f"jpeg progressive large {mode}", lambda m=mode: jpeg(m, 150, progressive=True)
    yield "jpeg 400 megapixels", lambda: enlarge(jpeg("RGB", 4), 28000, 14000, b"\xff\xc0")
    yield "jpeg 4,290 megapixels", lambda: enlarge(jpeg("RGB", 4), 65500, 65500, b"\xff\xc0")
    yield (
        "jpeg promised progressive",
        lambda: enlarge(jpeg("RGB", 4, progressive=True), 16000, 9000, b"\xff\xc2"),
    )
    yield "jpeg 60 scans", lambda: add_scans(jpeg("L", 50, progressive=True), 50)
    yield "jpeg 4,000 scans", lambda: add_scans(jpeg("L", 4, progressive=True), 4000)
    yield "jpeg fillers", lambda: (small := jpeg("L", 0.01))[:2] + b"\xff" * 5 * MEGA + small[2:]
    yield "jpeg segments", lambda: (small := jpeg("L", 0.01))[:2] + b"\xff\xfe\0\2" * MEGA + small[2:]
    yield "jpeg cut", lambda: jpeg("RGB", 90)[:5000]
    yield "jpeg turned", lambda: jpeg("RGB", 90, exif=make_exif(6))
    yield (
        "jpeg frames",
        lambda: encode(
            Image.new("RGB", (4000, 4000)),
            "MPO",
            save_all=True,
            append_images=[Image.new("RGB", (4000, 4000))] * 9,
        ),
    )


# Others that Pillow writes


def list_other() -> Iterator[tuple[str, Make]]:
    yield "webp lossless", lambda: flat("RGB", 15, "WEBP", lossless=True)
    yield "webp lossless alpha", lambda: flat("RGBA", 15, "WEBP", lossless=True)
    yield "webp lossy", lambda: flat("RGB", 60, "WEBP", quality=1, method=0)
    yield "webp lossy alpha", lambda: flat("RGBA", 60, "WEBP", quality=1, method=0)
    yield (
        "webp frames",
        lambda: encode(
            Image.new("RGB", (3000, 3000)),
            "WEBP",
            save_all=True,
            append_images=[Image.new("RGB", (3000, 3000), value) for value in range(5)],
        ),
    )
    yield "gif", lambda: flat("P", 60, "GIF")
    yield "gif transparent", lambda: flat("P", 60, "GIF", transparency=0)
    yield (
        "gif frames",
        lambda: encode(
            Image.new("P", (5000, 5000)),
            "GIF",
            save_all=True,
            append_images=[Image.new("P", (5000, 5000), 1)] * 20,
        ),
    )
    yield (
        "gif canvas",
        lambda: (small := flat("P", 0.01, "GIF"))[:6] + struct.pack("<HH", 65535, 65535) + small[10:],
    )
    yield "bmp 1 bit", lambda: flat("1", 90, "BMP")
    yield "bmp 8 bit", lambda: flat("L", 60, "BMP")
    yield "bmp 24 bit", lambda: flat("RGB", 40, "BMP")
    yield "bmp 32 bit", lambda: flat("RGBA", 40, "BMP")
    yield "bmp run lengths", make_bmp_runs
    yield "ppm binary", lambda: flat("RGB", 60, "PPM")
    yield "pgm 16 bit", lambda: b"P5 9000 9000 65535\n" + bytes(2 * 81 * MEGA)
    yield "pgm 2 levels", lambda: b"P5 9000 9000 1\n" + bytes(81 * MEGA)
    yield "pbm binary", lambda: flat("1", 90, "PPM")
    yield "ppm plain", lambda: b"P3\n2000 2000\n255\n" + b"255 0 9 " * 4 * MEGA
    yield "pbm plain", lambda: b"P1\n900 900\n" + b"1 " * 405_000
    yield "ppm comment", lambda: b"P6\n#" + b"a" * 60 * MEGA + b"\n9 9\n255\n" + bytes(243)
    yield "ppm comments", lambda: b"P6\n" + b"#a\n" * 20 * MEGA + b"9 9\n255\n" + bytes(243)
    yield "ppm long token", lambda: b"P6\n" + b"9" * 60 * MEGA + b"\n9\n255\n" + bytes(243)
    yield "pfm float", lambda: b"Pf\n6000 6000\n-1.0\n" + bytes(4 * 36 * MEGA)
    yield "pgm white space", lambda: b"P5\n" + b" " * 60 * MEGA + b"9 9\n255\n" + bytes(81)


def make_bmp_runs() -> bytes:
    """A BMP of 90 megapixels in run lengths: 255 pixels in two bytes."""
    width, height = 12_750, 7000
    rows = (b"\xff\0" * 50 + b"\0\0") * height + b"\0\1"
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(rows), 0, 0, 2, 0) + bytes(8)
    return b"BM" + struct.pack("<IHHI", 14 + len(header) + len(rows), 0, 0, 14 + len(header)) + header + rows


# TIFF


def list_tiff() -> Iterator[tuple[str, Make]]:
    for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK", "LAB", "I", "F", "I;16"):
        packed = "tiff_adobe_deflate" if mode != "1" else "group4"
        yield f"tiff {mode}", lambda m=mode, p=packed: flat(m, 60, "TIFF", compression=p)
    yield "tiff jpeg", lambda: flat("RGB", 60, "TIFF", compression="jpeg")
    yield "tiff lzw", lambda: flat("RGB", 60, "TIFF", compression="tiff_lzw")
    yield "tiff packbits", lambda: flat("L", 90, "TIFF", compression="packbits")
    yield "tiff raw", lambda: flat("RGB", 60, "TIFF")
    yield "tiff turned", lambda: flat("RGBA", 60, "TIFF", compression="tiff_lzw", tiffinfo={274: 6})
    yield (
        "tiff one strip",
        lambda: flat("RGB", 90, "TIFF", compression="tiff_adobe_deflate", strip_size=2**30),
    )
    yield "tiff shared pages", lambda: make_tiff(500, 8000)
    yield "tiff values", lambda: make_tiff(500, 100, n_values=MEGA)
    yield "tiff tiles", lambda: make_tiled_tiff(60_000)


def make_tiff(n_pages: int, side: int, n_values: int = 0) -> bytes:
    """A TIFF of empty pages of side x side pixels that share a strip, each with a tag of so many numbers."""
    size, first = 2 + 12 * 9 + 4, 8
    tags = [(256, 4, 1, side), (257, 4, 1, side), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1)]
    tags += [(273, 4, 1, first + n_pages * size), (278, 4, 1, side), (279, 4, 1, 2000)]
    entries = b"".join(struct.pack("<HHII", *tag) for tag in [*tags, (50000, 4, n_values, 8)])
    directories = [
        struct.pack("<H", 9) + entries + struct.pack("<I", (first + (page + 1) * size) * (page + 1 < n_pages))
        for page in range(n_pages)
    ]
    strip = zlib.compress(bytes(side * 100))[:2000]
    head = b"II*\0" + struct.pack("<I", first)
    return head + b"".join(directories) + strip.ljust(4 * n_values + 2000, b"\0")


def make_tiled_tiff(side: int) -> bytes:
    tags = [(256, 4, 1, 100), (257, 4, 1, 100), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1)]
    tags += [(322, 4, 1, side), (323, 4, 1, side), (324, 4, 1, 200), (325, 4, 1, 2000)]
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    start = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    return start.ljust(200, b"\0") + zlib.compress(bytes(2 * MEGA))


# Formats of other packages


def list_packaged() -> Iterator[tuple[str, Make]]:
    yield "avif", lambda: flat("RGB", 40, "AVIF", speed=10, quality=1)
    yield "avif alpha", lambda: flat("RGBA", 40, "AVIF", speed=10, quality=1)
    yield "avif large", lambda: flat("RGB", 90, "AVIF", speed=10, quality=1)
    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
        yield "heic", lambda: flat("RGB", 20, "HEIF", quality=1)
        yield "heic alpha", lambda: flat("RGBA", 20, "HEIF", quality=1)
        yield "heic 50 megapixels", lambda: flat("RGB", 50, "HEIF", quality=1)
    with suppress(ImportError):
        import pillow_jxl  # noqa: F401

        yield "jxl", lambda: flat("RGB", 30, "JXL", effort=1)
        yield "jxl lossless alpha", lambda: flat("RGBA", 30, "JXL", lossless=True, effort=1)
        yield "jxl large", lambda: flat("RGB", 90, "JXL", lossless=True, effort=1)
    with suppress(ImportError):
        import make_formats
        import rawpy  # noqa: F401

        yield "dng", lambda: make_formats.make_dng(Image.new("RGB", (5000, 4000)))
    with suppress(ImportError):
        import av  # noqa: F401
        import make_formats

        yield "mp4 8K", lambda: make_formats.make_video([Image.new("RGB", (7680, 4320), "red")])


SUFFIXES = {"heic": "heic", "tiff": "tif", "mp4": "mp4", "dng": "dng"}


def list_pictures() -> Iterator[tuple[str, Make]]:
    """The name of each picture and a function that makes its file."""
    for listing in (list_png, list_jpeg, list_other, list_tiff, list_packaged):
        yield from listing()


OPEN = """
import sys, threading
from fishermix_photos.photos.open import list_photos, open_photo, read_metadata
from fishermix_photos.photos.formats import UnreadableImage
import resource
path, side, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
outcomes = []
def read():
    try:
        outcomes.append("%d x %d" % open_photo(path, side=side).size)
    except UnreadableImage as error:
        outcomes.append(error.reason)
running = [threading.Thread(target=read) for _ in range(threads)]
[thread.start() for thread in running]
[thread.join() for thread in running]
read_metadata(path)
list_photos(path)
print(outcomes[0])
"""


def measure(path: Path, side: int, threads: int) -> tuple[int, float, str]:
    """The peak of memory in bytes of all processes that open a file, the seconds, and what became of it."""
    begun, peak = time.monotonic(), 0
    command = [sys.executable, "-c", OPEN, str(path), str(side), str(threads)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        used = 0
        with suppress(psutil.Error):
            for one in [watched, *watched.children(recursive=True)]:
                with suppress(psutil.Error):
                    used += one.memory_info().rss
        peak = max(peak, used)
        time.sleep(0.02)
    assert process.stdout
    printed = process.stdout.read().strip()
    return (
        peak,
        time.monotonic() - begun,
        printed if process.returncode == 0 else f"exit {process.returncode}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only pictures with one of these parts in their names")
    parser.add_argument("--side", type=int, default=260, help="what the picture is opened for")
    parser.add_argument("--threads", type=int, default=4)
    chosen = parser.parse_args()
    failed = count = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make in list_pictures():
            if chosen.names and not any(part in name for part in chosen.names):
                continue
            kind = name.split()[0]
            path = Path(folder) / f"picture.{SUFFIXES.get(kind, kind)}"
            path.write_bytes(make())
            peak, seconds, outcome = measure(path, chosen.side, chosen.threads)
            count += 1
            is_costly = peak > MOST_BYTES or seconds > MOST_SECONDS * chosen.threads
            failed += is_costly
            size = path.stat().st_size
            mark = "!" if is_costly else " "
            print(
                f"{mark} {name:28} {size:>11,} bytes {peak / MEGA:6.0f} MB {seconds:6.1f} s  {outcome[:90]}",
                flush=True,
            )
            path.unlink()
    print(f"{count} pictures, {failed} of them too costly")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
