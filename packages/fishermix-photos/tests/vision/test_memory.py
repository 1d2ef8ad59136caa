"""The memory that all pictures being decoded take together."""

import gc
import sys
import threading

import hostile_pictures
import numpy as np
import pytest
from fishermix_photos.photos import memory, worker
from fishermix_photos.photos.decode import _convert_to_rgb, decode_bytes
from fishermix_photos.photos.formats import UnreadableImage
from fishermix_photos.photos.memory import MemoryBudget
from fishermix_photos.photos.open import borrow_photo, open_photo
from PIL import Image

LIMIT = 80_000_000


@pytest.fixture(autouse=True, scope="module")
def no_idle_workers():
    yield
    worker.stop_workers()


def test_threads_never_hold_more_than_all_and_all_get_theirs():
    budget, seen, sizes = MemoryBudget(100), [], list(np.random.default_rng(0).integers(1, 120, 300))

    def work():
        while sizes:
            with budget.hold() as held:
                held.take(int(sizes.pop()))
                seen.append(budget.used)
                held.shrink(3)
                seen.append(budget.used)

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert len(seen) >= 600
    assert max(seen) <= 100
    assert budget.used == 0


def test_who_asks_for_more_than_all_waits_until_nobody_holds_any():
    budget, order = MemoryBudget(10), []

    def work():
        with budget.hold(50):
            order.append(("large", budget.used))

    with budget.hold(1):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(0.1)
        order.append("first")
    thread.join(10)
    assert order == ["first", ("large", 10)]


def test_a_failure_gives_the_memory_back():
    for data in (b"nothing", hostile_pictures.png(9, 9, 8, 2)[:-30], worker.NetworkBytes(b"P6\n9 9\n255\n")):
        with pytest.raises(UnreadableImage):
            open_photo(data)
    assert memory.PIXELS.used == memory.FILES.used == 0


def test_a_borrowed_photo_counts_until_it_is_returned(tmp_path):
    Image.new("RGB", (100, 50)).save(tmp_path / "a.png")
    Image.new("RGB", (100, 50)).save(tmp_path / "a.webp")
    for name in ("a.png", "a.webp"):
        with borrow_photo(tmp_path / name) as image:
            assert image.size == (100, 50)
            assert memory.PIXELS.used == 100 * 50 * 4
            assert memory.FILES.used == 0
        assert memory.PIXELS.used == 0


def test_a_decoder_says_what_it_needs_before_it_decodes():
    """A decoder that needs more would be measured by `hostile_pictures`."""
    asked = {}
    for mode, kind in [("RGB", "PNG"), ("RGB", "WEBP"), ("L", "TIFF"), ("RGB", "JPEG"), ("CMYK", "JPEG")]:
        taken = []
        decode_bytes(hostile_pictures.flat(mode, 0.02, kind), LIMIT, 0, take=taken.append)
        asked[mode, kind] = taken
    pixels = 200 * 100
    assert asked["RGB", "PNG"] == asked["L", "TIFF"] == asked["RGB", "JPEG"] == [8 * pixels]
    assert asked["RGB", "WEBP"] == [24 * pixels]
    taken = []
    decode_bytes(hostile_pictures.jpeg("CMYK", 0.02, progressive=True), LIMIT, 0, take=taken.append)
    assert taken == [(8 + 2 * 4) * pixels]


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "LA", "CMYK", "LAB", "I;16", "I", "F"])
def test_a_picture_that_is_converted_in_tiles_has_the_same_pixels(mode, monkeypatch):
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 256, (130, 170, 4), np.uint8), "RGBA")
    if mode in ("I;16", "I", "F"):
        kinds = {"I;16": np.uint16, "I": np.int32, "F": np.float32}
        image = Image.fromarray(rng.integers(0, 60_000, (130, 170)).astype(kinds[mode]))
    else:
        image = (
            noise.convert("RGB").convert(mode)
            if mode in ("P", "CMYK")
            else noise.convert(mode if mode != "LAB" else "RGB")
        )
        image = Image.fromarray(np.asarray(noise)[..., :3], "LAB") if mode == "LAB" else image
    monkeypatch.setattr("fishermix_photos.photos.decode.TILE_SIDE", 10_000)
    whole = np.asarray(_convert_to_rgb(image))
    monkeypatch.setattr("fishermix_photos.photos.decode.TILE_SIDE", 64)
    assert np.array_equal(np.asarray(_convert_to_rgb(image)), whole)


WORST = ["png turned RGBA", "tiff F", "webp lossy", "avif alpha", "jpeg progressive RGB"]


@pytest.mark.slow
@pytest.mark.parametrize("name", WORST)
def test_four_threads_that_open_a_hostile_picture_take_less_than_1_gb(name, tmp_path):
    make = dict(hostile_pictures.list_pictures())[name]
    path = tmp_path / f"picture.{name.split()[0].replace('tiff', 'tif')}"
    path.write_bytes(make())
    peak, _, outcome = hostile_pictures.measure(path, side=260, threads=4)
    assert peak < hostile_pictures.MOST_BYTES, outcome


@pytest.mark.slow
def test_a_worker_takes_a_file_of_any_size_that_may_be_decoded(tmp_path):
    """Its limit of memory is raised before it reads the file, which 180 MB of pixels need."""
    path = tmp_path / "large.ppm"
    path.write_bytes(b"P6 8000 7500 255\n" + bytes(180_000_000))
    assert open_photo(path, side=260).size == (8000, 7500)


@pytest.mark.slow
def test_a_refused_file_does_not_stay_in_memory():
    gc.disable()
    try:
        data = b"P6\n9000 9000\n255\n" + bytes(100_000)
        before = sys.getrefcount(data)
        with pytest.raises(UnreadableImage):
            decode_bytes(data, 1_000_000, 0)
        assert sys.getrefcount(data) == before
    finally:
        gc.enable()
