"""Pictures that are small files and would cost minutes or gigabytes, and the worker that bounds the rest."""

import io
import os
import struct
import subprocess
import sys
import threading
import time
import zlib
from contextlib import suppress

import make_formats
import numpy as np
import odd_images
import psutil
import pytest
from fishermix_photos.model.image_encoder import ImageEncoder
from fishermix_photos.photos import decode, worker
from fishermix_photos.photos import open as opening
from fishermix_photos.photos.decode import count_scans, decode_bytes, is_bounded
from fishermix_photos.photos.formats import UnreadableImage
from fishermix_photos.photos.open import list_photos, open_photo, read_metadata
from fishermix_photos.photos.worker import NetworkBytes
from odd_images import encoded
from PIL import Image, ImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile
from refuses import refuses

LIMIT = 80_000_000
READABLE = odd_images.readable()
PICTURE = odd_images.four_colours()


@pytest.fixture(autouse=True, scope="module")
def no_idle_workers():
    """A process that is started here is ended here."""
    yield
    worker.stop_workers()


def add_scans(jpeg: bytes, number: int) -> bytes:
    """A progressive JPEG with its last scan repeated."""
    start, end = jpeg.rindex(b"\xff\xda"), jpeg.rindex(b"\xff\xd9")
    return jpeg[:end] + jpeg[start:end] * number + jpeg[end:]


def add_chunks(png: bytes, number: int) -> bytes:
    """A PNG with this many empty chunks before its pixels. Pillow keeps each."""
    start, empty = png.index(b"IDAT") - 4, b"\0\0\0\0abCd" + zlib.crc32(b"abCd").to_bytes(4)
    return png[:start] + empty * number + png[start:]


FLAT = encoded(Image.new("L", (2000, 2000), 90), "JPEG", progressive=True)
LARGE_SCANS = add_scans(encoded(Image.new("L", (10_000, 8_000), 90), "JPEG", progressive=True), 50)
SMALL_PNG = encoded(odd_images.four_colours(), "PNG")
# As slow as a picture may be: it takes libjpeg seconds.
SLOW = add_scans(encoded(Image.new("L", (8000, 6500), 90), "JPEG", progressive=True), 54)


def make_sequential(width: int, height: int) -> bytes:
    """A JPEG that is not progressive, with a scan for each of its three colors."""
    gray = encoded(Image.new("L", (width, height), 90), "JPEG")
    frame, scan, end = gray.index(b"\xff\xc0"), gray.index(b"\xff\xda"), gray.rindex(b"\xff\xd9")
    color = gray[frame + 11 : frame + 13]  # sampling factors and the table
    colors = b"".join(bytes([number]) + color for number in (1, 2, 3))
    header = b"\xff\xc0\x00\x11" + gray[frame + 4 : frame + 9] + b"\x03" + colors
    scans = [gray[scan : scan + 5] + bytes([number]) + gray[scan + 6 : end] for number in (1, 2, 3)]
    return gray[:frame] + header + gray[frame + 13 : scan] + b"".join(scans) + gray[end:]


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
    return (
        b"II*\0" + struct.pack("<I", first) + b"".join(directories) + strip.ljust(4 * n_values + 2000, b"\0")
    )


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (add_scans(FLAT, 4000), "too_costly"),
        (LARGE_SCANS, "too_costly"),
        (b"P3\n2000 2000\n255\n" + b"255 0 9 " * 4_000_000, "too_costly"),
        (b"P6\n#" + b"a" * 2_000_000 + b"\n9 9\n255\n" + bytes(243), "too_costly"),
        (b"P6\n" + b"#a\n" * 1_000_000 + b"9 9\n255\n" + bytes(243), "too_costly"),
        (b"P5\n" + b" " * 2_000_000 + b"9 9\n255\n" + bytes(81), "too_costly"),
        (add_chunks(SMALL_PNG, 100_000), "too_costly"),
        (encoded(Image.new("RGB", (8500, 8500)), "WEBP", lossless=True), "wrong_proportion"),
        (encoded(Image.new("1", (8500, 8500)), "TIFF", compression="group4"), "wrong_proportion"),
    ],
    ids=["scans", "large scans", "plain PPM", "comment", "comments", "white space", "PNG", "WebP", "TIFF"],
)
def test_absurd_pictures_are_refused_before_they_are_decoded(data, code, monkeypatch):
    def load(*_):
        raise AssertionError("it was decoded")

    for kind in (ImageFile.ImageFile, TiffImageFile, WebPImageFile):
        monkeypatch.setattr(kind, "load", load)
    with refuses(code):
        open_photo(data, LIMIT)
    with refuses(code):
        open_photo(NetworkBytes(data), LIMIT)


def test_tiles_larger_than_the_picture_are_refused():
    image = Image.open(io.BytesIO(READABLE["plain.tif"]))
    decode.check_proportion(image, image.size, 9000)
    image.tag_v2[322], image.tag_v2[323] = 256, 256
    decode.check_proportion(image, image.size, 9000)
    image.tag_v2[322], image.tag_v2[323] = 30_000, 30_000
    with refuses("wrong_proportion"):
        decode.check_proportion(image, image.size, 9000)


@pytest.mark.slow
def test_ordinary_pictures_are_not_absurd():
    ordinary = {
        "progressive": encoded(odd_images.four_colours(2000, 1500), "JPEG", progressive=True),
        "blank, 12 megapixels": encoded(Image.new("RGB", (4000, 3000)), "PNG"),
        "blank, 20 megapixels": encoded(Image.new("RGB", (5000, 4000)), "PNG"),
        "blank, as JPEG": encoded(Image.new("RGB", (5000, 4000)), "JPEG", progressive=True),
        "white page": encoded(Image.new("1", (3000, 4000), 1), "TIFF", compression="group4"),
    }
    for name, data in ordinary.items():
        assert max(open_photo(data, LIMIT, side=64).size) > 100, name


def test_only_the_scans_of_the_picture_itself_count():
    jpeg = READABLE["progressive.jpg"]
    scans = count_scans(jpeg)
    assert 6 <= scans <= 12
    assert count_scans(READABLE["plain.jpg"]) == 1
    assert count_scans(add_scans(jpeg, 5)) == scans + 5
    thumbnail = add_scans(jpeg, 3)  # in the metadata, as cameras do
    length = (len(thumbnail) + 2).to_bytes(2)
    assert count_scans(jpeg[:2] + b"\xff\xe1" + length + thumbnail + jpeg[2:]) == scans
    assert count_scans(jpeg + b"\xff\xda" * 1000) == scans  # a film after the picture


def test_which_files_are_decoded_here():
    here = {name for name, data in READABLE.items() if is_bounded(data)}
    simple = {name for name, data in READABLE.items() if data[:3] in (b"\xff\xd8\xff", b"\x89PN")}
    assert here == simple - {"progressive.jpg"}
    assert is_bounded(b"")
    assert not is_bounded(b"a text")
    assert not is_bounded(b"\xff\x0a")  # JPEG XL
    assert not is_bounded(b"\0\0\0\x18ftypheic")
    assert not is_bounded(add_chunks(SMALL_PNG, decode.MAX_CHUNKS))


def test_a_jpeg_with_a_scan_per_color_is_decoded_by_a_worker():
    """libjpeg keeps all its coefficients in memory, at the full size."""
    data = make_sequential(400, 300)
    assert not is_bounded(data)
    assert Image.open(io.BytesIO(data)).info.get("progressive") is None
    worker.stop_workers()
    assert open_photo(data, LIMIT, side=20).size == (100, 75)
    assert len(worker._idle) == 1
    with refuses("too_large"):
        open_photo(make_sequential(4000, 3000), 1_000_000, side=100)


def make_lossless(width, height, scans):
    """A lossless JPEG (frame C3) of three colors whose scans are empty: libjpeg assumes zeros."""
    frame = struct.pack(">BHHB", 8, height, width, 3) + b"".join(
        bytes([color, 0x11, 0]) for color in (1, 2, 3)
    )
    segments = [(b"\xff\xc3", frame), (b"\xff\xc4", b"\0\1" + bytes(16))]
    segments += [(b"\xff\xda", bytes([1, number % 3 + 1, 0, 1, 0, 0])) for number in range(scans)]
    written = [marker + struct.pack(">H", len(content) + 2) + content for marker, content in segments]
    return b"\xff\xd8" + b"".join(written) + b"\xff\xd9"


def test_the_scans_of_a_lossless_jpeg_count():
    """2,000 scans of 540 x 29000 pixels, in 20 kB, would take minutes."""
    assert open_photo(make_lossless(40, 30, 3), LIMIT).size == (40, 30)
    assert not is_bounded(make_lossless(40, 30, 3))
    with refuses("too_costly"):
        open_photo(make_lossless(40, 30, 100), LIMIT)


def write_chunk(kind, content):
    """A chunk of a PNG."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def test_a_jpeg_full_of_fillers_is_searched_once():
    """Any number of bytes FF may precede a marker. Of a megabyte of them, the search took 40 minutes."""
    for jpeg in (READABLE["plain.jpg"], READABLE["progressive.jpg"]):
        for fillers in (b"\xff" * 50_000, b"\xff" * 50_000 + b"\0"):
            begun = time.process_time()
            data = jpeg[:2] + fillers + jpeg[2:]
            assert is_bounded(data) == is_bounded(jpeg)
            assert count_scans(data) == count_scans(jpeg)
            assert time.process_time() - begun < 1


@pytest.mark.parametrize("name", ["plain.jpg", "plain.png"])
def test_a_picture_with_megabytes_of_metadata_is_decoded_by_a_worker(name):
    """Pillow makes an object of each number of the EXIF: 20 MB of fractions took 30 seconds and 450 MB."""

    def add_exif(count):
        tag = struct.pack("<HHHII", 1, 0x0112, 5, count, 26)
        exif = b"II*\0\x08\0\0\0" + tag + bytes(4) + b"\1\0\0\0\3\0\0\0" * count
        data = READABLE[name]
        if name.endswith("png"):
            return data[:33] + write_chunk(b"eXIf", exif) + data[33:]
        parts = [exif[start : start + 65_000] for start in range(0, len(exif), 65_000)]
        segments = [b"\xff\xe1" + struct.pack(">H", 8 + len(part)) + b"Exif\0\0" + part for part in parts]
        return data[:2] + b"".join(segments) + data[2:]

    assert is_bounded(add_exif(100))
    assert not is_bounded(add_exif(200_000))


def test_a_png_with_many_color_profiles_is_decoded_by_a_worker():
    """Pillow decompresses each of them, up to a megabyte in a kilobyte; a PNG may have one."""
    data = encoded(Image.new("RGB", (9, 9)), "PNG")
    profile = write_chunk(b"iCCP", b"name\0\0" + zlib.compress(bytes(1000)))
    assert is_bounded(data[:33] + profile + data[33:])
    assert not is_bounded(data[:33] + 2 * profile + data[33:])


def test_pages_that_share_their_pixels_are_as_many_as_a_file_may_have(tmp_path):
    """Each would be decoded anew: 500 of them took 20 minutes."""
    path = tmp_path / "shared.tif"
    path.write_bytes(make_tiff(500, 8000))
    assert len(list_photos(path)) == 7  # of 64 megapixels each
    path.write_bytes(make_tiff(30, 2000))
    assert len(list_photos(path)) == 30


def test_pages_are_listed_by_a_worker(tmp_path):
    path = tmp_path / "pages.tif"
    path.write_bytes(make_tiff(30, 100))
    worker.stop_workers()
    assert len(list_photos(path)) == 30
    assert len(worker._idle) == 1


def test_the_pages_of_a_file_share_its_seconds(tmp_path, tiny, monkeypatch):
    """Each page has its limit; a file of 500 pages would have 500 of them."""
    path = tmp_path / "pages.tif"
    PICTURE.save(path, save_all=True, append_images=[PICTURE])
    places = list_photos(path)
    monkeypatch.setattr(opening, "SECONDS_OF_FILE", 1e-6)
    first, second = (result.reason for _, result in ImageEncoder(tiny, threads=1).stream(places))
    assert first.startswith("decoding it took too long")
    assert second.startswith("the pictures in its file took too long")
    budget = opening.TimeBudget()
    with suppress(UnreadableImage):
        open_photo(path, budget=budget)
    with budget.spend("another file") as seconds:
        assert seconds == 1e-6


@pytest.mark.slow
def test_no_decoder_but_pillow_is_opened_in_the_process_of_a_user(tmp_path):
    """LibRaw, FFmpeg and libheif run in workers, also when only the details of a photo are read."""
    pytest.importorskip("av")
    make_formats.make_folder(tmp_path, PICTURE)
    code = (
        "import sys; from pathlib import Path\n"
        "from fishermix_photos.photos.open import list_photos, open_photo, read_metadata\n"
        "for path in sorted(Path(sys.argv[1]).iterdir()):\n"
        "    assert 'width' in read_metadata(path), path\n"
        "    assert [open_photo(place).size for place in list_photos(path)], path\n"
        "print(sys.modules.keys() & {'av', 'rawpy', 'pillow_heif', 'pillow_jxl'})"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], stdout=-1, check=True, text=True)
    assert done.stdout == "set()\n"


@pytest.mark.slow
def test_a_video_is_bounded_in_time_and_memory(tmp_path, monkeypatch):
    pytest.importorskip("av")
    path = tmp_path / "clip.mp4"
    path.write_bytes(make_formats.make_video([Image.new("RGB", (3840, 2160), "red")]))
    monkeypatch.setattr(worker, "SECONDS", 0.001)
    with refuses("too_slow"):
        open_photo(path)
    monkeypatch.undo()
    assert open_photo(path).size == (3840, 2160)


def test_directories_that_overlap_are_not_read_again_and_again(tmp_path):
    """Each has a million numbers, which lie in the same place: a file of 4 MB took minutes."""
    path = tmp_path / "overlapping.tif"
    path.write_bytes(make_tiff(500, 100, n_values=1_000_000))
    begun = time.perf_counter()
    places = list_photos(path)
    assert len(places) == 500
    with suppress(UnreadableImage):
        open_photo(places[-1])
    assert time.perf_counter() - begun < 10
    path.write_bytes(make_tiff(2, 100, n_values=5_000_000)[:-20_000_000])
    assert list_photos(path) == [str(path)]
    with refuses("too_costly"):
        open_photo(path)


def test_a_page_of_a_large_tiff_is_that_page(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    with tifffile.TiffWriter(tmp_path / "big.tif", bigtiff=True) as file:
        for value in (10, 200):
            file.write(np.full((12, 16, 3), value, np.uint8), photometric="rgb")
    places = list_photos(tmp_path / "big.tif")
    assert [open_photo(place).getpixel((0, 0)) for place in places] == [(10,) * 3, (200,) * 3]


def test_the_details_of_a_png_are_read_without_its_pixels(tmp_path, monkeypatch):
    exif = Image.Exif()
    exif[0x0110] = "Camera"
    plain, with_exif = encoded(PICTURE, "PNG"), encoded(PICTURE, "PNG", exif=exif.tobytes())
    start = with_exif.index(b"eXIf") - 4
    chunk = with_exif[start : start + 12 + int.from_bytes(with_exif[start : start + 4])]
    for name, data in {
        "none": plain,
        "before": with_exif,
        "after": plain[:-12] + chunk + plain[-12:],
    }.items():
        (tmp_path / f"{name}.png").write_bytes(data)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda *_: pytest.fail("the pixels were decoded"))
    size = {"width": PICTURE.width, "height": PICTURE.height}
    assert read_metadata(tmp_path / "none.png") == size
    assert read_metadata(tmp_path / "before.png") == size | {"camera": "Camera"}
    assert read_metadata(tmp_path / "after.png") == size | {"camera": "Camera"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@pytest.mark.parametrize("name", ["photo.jpg", "clip.mp4", "scan.tif"])
def test_a_file_that_became_a_pipe_stops_nothing(name, tmp_path, monkeypatch):
    """Also if it was still a file when somebody looked."""
    pytest.importorskip("av")
    regular = os.stat(__file__)
    os.mkfifo(tmp_path / name)
    monkeypatch.setattr(os, "stat", lambda *_, **__: regular)
    found = []

    def read():
        found.append(list_photos(tmp_path / name))
        found.append(read_metadata(tmp_path / name))
        with refuses("cannot_read"):
            open_photo(tmp_path / name)
        found.append("done")

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(20)
    assert found == [[str(tmp_path / name)], {}, "done"]


@pytest.mark.parametrize("name", sorted(READABLE))
def test_a_worker_gives_the_same_pixels(name):
    here = decode_bytes(READABLE[name], LIMIT, 20)
    assert np.array_equal(open_photo(NetworkBytes(READABLE[name]), LIMIT, side=20), here)


def test_a_worker_gives_the_same_reasons():
    for name, data in odd_images.unreadable().items():
        with pytest.raises(UnreadableImage) as here:
            decode_bytes(data, LIMIT, 0)
        with pytest.raises(UnreadableImage) as there:
            open_photo(NetworkBytes(data), LIMIT)
        assert there.value.reason == here.value.reason, name


@pytest.mark.slow
def test_a_picture_that_takes_too_long_ends_its_worker_and_not_the_next(monkeypatch):
    worker.stop_workers()
    open_photo(NetworkBytes(SMALL_PNG), LIMIT)
    (used,) = worker._idle
    monkeypatch.setattr(worker, "SECONDS_FROM_NETWORK", 0.5)
    with refuses("too_slow"):
        open_photo(NetworkBytes(SLOW), LIMIT)
    assert used.process.poll() is not None
    monkeypatch.undo()
    assert open_photo(NetworkBytes(SMALL_PNG), LIMIT).size == (64, 48)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced():
    worker.stop_workers()
    open_photo(NetworkBytes(SMALL_PNG), LIMIT)
    (used,) = worker._idle
    used.process.kill()
    used.process.wait()
    assert open_photo(NetworkBytes(SMALL_PNG), LIMIT).size == (64, 48)
    assert worker._idle[0].process.pid != used.process.pid
    threading.Timer(0.5, worker._idle[0].process.kill).start()
    with refuses("crashed"):
        open_photo(NetworkBytes(SLOW), LIMIT)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
def test_the_memory_of_a_worker_is_limited():
    code = (
        "from fishermix_photos.photos import worker\n"
        "worker._limit_memory(1_000_000, 0)\n"
        "bytearray(100 << 20)\n"
        "try:\n    bytearray(200 << 20)\nexcept MemoryError:\n    print('limited')"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=-1, check=True).stdout == b"limited\n"


def test_workers_end_with_the_process_that_started_them():
    code = (
        "import sys; from fishermix_photos.photos import worker\n"
        "from fishermix_photos.photos.open import open_photo\n"
        "open_photo(worker.NetworkBytes(sys.stdin.buffer.read()))\n"
        "print(worker._idle[0].process.pid, flush=True)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    pid = int(subprocess.run([sys.executable, "-c", code], input=SMALL_PNG, stdout=-1, check=False).stdout)
    assert _ends(pid)


def _ends(pid: int) -> bool:
    for _ in range(200):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except OSError:
            return not psutil.pid_exists(pid)
        time.sleep(0.05)
    return False


def test_a_slow_photo_does_not_stop_the_index(tmp_path, tiny, monkeypatch):
    """The others are encoded, in the same bits as without it."""
    monkeypatch.setattr(worker, "SECONDS", 0.5)
    names = [name for name in READABLE if name.endswith((".jpg", ".png"))][:6]
    for name in names:
        (tmp_path / name).write_bytes(READABLE[name])
    (tmp_path / "slow.jpg").write_bytes(SLOW)
    encoder = ImageEncoder(tiny, threads=2)
    paths = [tmp_path / name for name in (*names[:3], "slow.jpg", *names[3:])]
    found = [result for _, result in encoder.stream(paths)]
    assert "took too long" in found.pop(3).reason
    assert np.array_equal(np.stack(found), encoder.transform([tmp_path / name for name in names]))


BAD_EXIF = READABLE["plain.jpg"][:2] + b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x0e\x01\x02\0"
BAD_EXIF += b"\xff\xff\0\0\xff\0\0\0\0\0\0\0" + READABLE["plain.jpg"][2:]


@pytest.mark.slow
def test_a_command_shows_no_warning_of_another_package(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "photo.jpg").write_bytes(BAD_EXIF)
    command = ["search", "four colours", str(folder), "--library", str(tmp_path / "library")]
    done = subprocess.run(
        [sys.executable, "-c", "from fishermix_photos.cli import main; main()", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "photo.jpg" in done.stdout, done.stderr
    assert "Warning" not in done.stderr
    assert "site-packages" not in done.stderr
