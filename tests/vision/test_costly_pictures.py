"""Pictures that are small files and would cost minutes or gigabytes, and the worker that bounds the rest."""

import io
import logging
import subprocess
import sys
import threading
import time
import warnings
import zlib

import numpy as np
import odd_images
import psutil
import pytest
from odd_images import encoded
from PIL import Image, ImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from fishermix.vision import images, picture_cost, remarks, worker
from fishermix.vision.encoders import ImageEncoder
from fishermix.vision.images import UnreadableImage, open_photo
from fishermix.vision.picture_cost import count_scans, is_bounded
from fishermix.vision.worker import NetworkBytes

LIMIT = 80_000_000
READABLE = odd_images.readable()


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
    """A PNG with this many empty chunks before its pixels. Pillow takes microseconds for each."""
    start, empty = png.index(b"IDAT") - 4, b"\0\0\0\0abCd" + zlib.crc32(b"abCd").to_bytes(4)
    return png[:start] + empty * number + png[start:]


FLAT = encoded(Image.new("L", (2000, 2000), 90), "JPEG", progressive=True)
SMALL_PNG = encoded(odd_images.four_colours(), "PNG")
SLOW = add_chunks(SMALL_PNG, 1_500_000)  # takes Pillow about five seconds


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (add_scans(FLAT, 4000), "scans; decoding it would take too long"),
        (b"P3\n2000 2000\n255\n" + b"255 0 9 " * 4_000_000, "a PPM in ASCII"),
        (encoded(Image.new("RGB", (8500, 8500)), "WEBP", lossless=True), "bytes are too few for 8500 x 8500"),
        (encoded(Image.new("1", (8500, 8500)), "TIFF", compression="group4"), "bytes are too few"),
    ],
    ids=["scans", "plain PPM", "WebP", "TIFF"],
)
def test_absurd_pictures_are_refused_before_they_are_decoded(data, reason, monkeypatch):
    def load(*_):
        raise AssertionError("it was decoded")

    for kind in (ImageFile.ImageFile, TiffImageFile, WebPImageFile):
        monkeypatch.setattr(kind, "load", load)
    with pytest.raises(UnreadableImage, match=reason):
        images._decode_within_limits(data, LIMIT, 0, "")
    with pytest.raises(UnreadableImage, match=reason):
        open_photo(NetworkBytes(data), LIMIT)


def test_tiles_larger_than_the_picture_are_refused():
    image = Image.open(io.BytesIO(READABLE["plain.tif"]))
    picture_cost.check_proportion(image, image.size, 9000)
    image.tag_v2[322], image.tag_v2[323] = 256, 256
    picture_cost.check_proportion(image, image.size, 9000)
    image.tag_v2[322], image.tag_v2[323] = 30_000, 30_000
    with pytest.raises(UnreadableImage, match="larger than the picture"):
        picture_cost.check_proportion(image, image.size, 9000)


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
    assert here == {name for name, data in READABLE.items() if data[:3] in (b"\xff\xd8\xff", b"\x89PN")}
    assert is_bounded(b"")
    assert is_bounded(b"a text")
    assert not is_bounded(b"\0\0\0\x18ftypheic")
    assert not is_bounded(SLOW)


@pytest.mark.parametrize("name", sorted(READABLE))
def test_a_worker_gives_the_same_pixels(name):
    here, _ = images.decode_bytes(READABLE[name], LIMIT, 20)
    assert np.array_equal(open_photo(NetworkBytes(READABLE[name]), LIMIT, side=20), here)


def test_a_worker_gives_the_same_reasons():
    for name, data in odd_images.unreadable().items():
        with pytest.raises(UnreadableImage) as here:
            images.decode_bytes(data, LIMIT, 0)
        with pytest.raises(UnreadableImage) as there:
            open_photo(NetworkBytes(data), LIMIT)
        assert there.value.reason == here.value.reason, name


def test_a_picture_that_takes_too_long_ends_its_worker_and_not_the_next(monkeypatch):
    worker.stop_workers()
    open_photo(NetworkBytes(SMALL_PNG), LIMIT)
    (used,) = worker._idle
    monkeypatch.setattr(worker, "SECONDS_FROM_NETWORK", 0.5)
    with pytest.raises(UnreadableImage, match=r"took too long \(more than 0.5 s\)"):
        open_photo(NetworkBytes(SLOW), LIMIT)
    assert used.process.poll() is not None
    monkeypatch.undo()
    assert open_photo(NetworkBytes(SMALL_PNG), LIMIT).size == (64, 48)


def test_a_worker_that_is_killed_is_replaced():
    worker.stop_workers()
    open_photo(NetworkBytes(SMALL_PNG), LIMIT)
    (used,) = worker._idle
    used.process.kill()
    used.process.wait()
    assert open_photo(NetworkBytes(SMALL_PNG), LIMIT).size == (64, 48)
    assert worker._idle[0].process.pid != used.process.pid
    threading.Timer(0.5, worker._idle[0].process.kill).start()
    with pytest.raises(UnreadableImage, match="its decoder crashed or needed too much memory"):
        open_photo(NetworkBytes(SLOW), LIMIT)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
def test_the_memory_of_a_worker_is_limited():
    code = (
        "from fishermix.vision import worker\n"
        "worker._limit_memory(1_000_000, 0)\n"
        "bytearray(200 << 20)\n"
        "try:\n    bytearray(400 << 20)\nexcept MemoryError:\n    print('limited')"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=-1, check=True).stdout == b"limited\n"


def test_workers_end_with_the_process_that_started_them():
    code = (
        "import sys; from fishermix.vision import worker; from fishermix.vision.images import open_photo\n"
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
    (tmp_path / "slow.png").write_bytes(SLOW)
    encoder = ImageEncoder(tiny, threads=2)
    paths = [tmp_path / name for name in (*names[:3], "slow.png", *names[3:])]
    found = [result for _, result in encoder.stream(paths)]
    assert "took too long" in found.pop(3).reason
    assert np.array_equal(np.stack(found), encoder.transform([tmp_path / name for name in names]))


BAD_EXIF = READABLE["plain.jpg"][:2] + b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x0e\x01\x02\0"
BAD_EXIF += b"\xff\xff\0\0\xff\0\0\0\0\0\0\0" + READABLE["plain.jpg"][2:]


@pytest.mark.parametrize("source", [bytes, NetworkBytes])
def test_remarks_of_a_decoder_are_collected_and_not_shown(source, caplog, tmp_path):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        Image.open(io.BytesIO(BAD_EXIF)).getexif()
    assert shown  # Pillow does warn
    before = warnings.showwarning, list(warnings.filters)
    with warnings.catch_warnings(record=True) as shown, caplog.at_level(logging.INFO, "fishermix.vision"):
        warnings.simplefilter("always")
        for _ in range(2):
            assert open_photo(source(BAD_EXIF), LIMIT).size == (64, 48)
    assert shown == []
    assert len(caplog.records) == 2  # the second photo is remarked on as the first was
    assert (warnings.showwarning, warnings.filters) == before


def test_remarks_go_to_the_thread_that_caused_them():
    """And warnings of threads that decode nothing are shown as before."""
    seen, stop = [], threading.Event()

    def decode(name):
        while not stop.is_set():
            with remarks.collect_remarks() as found:
                warnings.warn(name, stacklevel=1)
            seen.append((name, found))

    threads = [threading.Thread(target=decode, args=(name,)) for name in ("first", "second")]
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for thread in threads:
            thread.start()
        while len(seen) < 1000:
            pass
        stop.set()
        for thread in threads:
            thread.join()
        warnings.warn("outside", stacklevel=1)
    assert all(found == [name] for name, found in seen)
    assert [str(one.message) for one in shown] == ["outside"]


def test_a_command_shows_no_warning_of_another_package(tmp_path, tiny):
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "photo.jpg").write_bytes(BAD_EXIF)
    (folder / "captions.csv").write_text("image,caption\nphoto.jpg,four colours\n")
    command = ["features", f"folder:{folder}", "--out", str(tmp_path / "out"), "--encoder", str(tiny)]
    done = subprocess.run(
        [sys.executable, "-c", "from fishermix.cli import main; main()", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 encoded" in done.stdout, done.stderr
    assert "Warning" not in done.stderr
    assert "site-packages" not in done.stderr
