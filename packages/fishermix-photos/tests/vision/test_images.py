import ast
import io
import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import odd_images
import pytest
from fishermix.errors import FishermixError
from fishermix_photos.photos import memory as photos_memory
from fishermix_photos.photos import open as opening
from fishermix_photos.photos.formats import UnreadableImage
from fishermix_photos.photos.memory import MemoryBudget
from fishermix_photos.photos.open import default_max_pixels, open_photo, read_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from refuses import refuses

LIMIT = 10_000_000
READABLE = odd_images.readable()


def corners(image: Image.Image) -> np.ndarray:
    """The colours in the middle of the four quadrants."""
    width, height = image.size
    places = [(x, y) for y in (height // 4, 3 * height // 4) for x in (width // 4, 3 * width // 4)]
    return np.array([image.getpixel(place) for place in places], float)


@pytest.mark.parametrize("name", sorted(READABLE))
def test_every_kind_of_file_shows_the_same_picture(name):
    image = open_photo(READABLE[name], LIMIT, side=260)
    assert image.mode == "RGB"
    assert image.size == (odd_images.WIDTH, odd_images.HEIGHT)
    wanted = odd_images.four_colours()
    if name.startswith("grey"):
        wanted = wanted.convert("L").convert("RGB")
    assert np.abs(corners(image) - corners(wanted)).max() <= 12


@pytest.mark.parametrize("name", sorted(odd_images.extreme()))
def test_extreme_shapes(name):
    image = open_photo(odd_images.extreme()[name], LIMIT)
    wanted = odd_images.WHITE if name == "one bit.png" else odd_images.RED
    assert np.abs(np.array(image.getpixel((0, 0))) - wanted).max() <= 3


@pytest.mark.parametrize("name", sorted(odd_images.unreadable()))
def test_bad_files_give_a_reason(name):
    with pytest.raises(UnreadableImage) as caught:
        open_photo(odd_images.unreadable()[name], LIMIT)
    assert caught.value.reason
    assert isinstance(caught.value, FishermixError)


def test_only_known_formats_are_tried():
    with refuses("not_an_image"):
        open_photo(odd_images.encoded(odd_images.four_colours(), "ICO"), LIMIT)


def test_the_message_about_too_many_pixels_names_the_option():
    data = odd_images.encoded(odd_images.four_colours(), "PNG")
    with refuses("too_large"):
        open_photo(data, odd_images.WIDTH * odd_images.HEIGHT - 1)
    open_photo(data, odd_images.WIDTH * odd_images.HEIGHT)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("share", [1.5, 3])  # Pillow warns up to twice its limit, and raises above
def test_a_decompression_bomb_is_an_error_even_below_our_limit(monkeypatch, share):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", int(odd_images.WIDTH * odd_images.HEIGHT / share))
    with refuses("too_large"):
        open_photo(odd_images.encoded(odd_images.four_colours(), "PNG"), LIMIT)


def test_the_limit_follows_from_memory(monkeypatch):
    assert default_max_pixels() > 1_000_000
    monkeypatch.setattr(opening, "PIXELS", MemoryBudget(2**28))
    assert default_max_pixels() == 2**25
    for memory, of_pixels in {2**30: 2**26, 2**36: 2**29, None: 2**29}.items():
        monkeypatch.setattr(photos_memory, "memory_in_bytes", lambda memory=memory: memory)
        assert photos_memory.choose_bytes_of_pixels() == of_pixels


def test_a_file_too_large_for_an_image_is_not_read(tmp_path):
    path = tmp_path / "huge.jpg"
    with open(path, "wb") as file:
        file.truncate(10_000_000_000)
    with refuses("too_large"):
        read_bytes(path, LIMIT)


def test_sixteen_bits_are_scaled_not_clipped():
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    image = open_photo(odd_images.encoded(Image.fromarray(ramp), "PNG"), LIMIT)
    assert np.abs(np.asarray(image)[..., 0].ravel() - np.arange(256.0)).max() <= 1


def test_half_transparent_is_over_white():
    image = open_photo(odd_images.encoded(Image.new("RGBA", (4, 4), (0, 0, 0, 128)), "PNG"), LIMIT)
    assert image.getpixel((0, 0)) == pytest.approx((127, 127, 127), abs=1)


def test_reduced_decoding_of_a_large_jpeg_keeps_the_picture():
    rng = np.random.default_rng(0)
    rough = Image.fromarray(rng.integers(0, 256, (30, 40, 3), np.uint8)).resize((2400, 1800))
    data = odd_images.encoded(rough, "JPEG", quality=95)
    whole, reduced = open_photo(data, LIMIT), open_photo(data, LIMIT, side=224)
    assert reduced.size[0] < whole.size[0]
    assert min(reduced.size) >= 2 * 224
    first, second = (
        np.asarray(image.resize((224, 224), Image.Resampling.BICUBIC), float) for image in (whole, reduced)
    )
    assert np.abs(first - second).mean() < 1


def test_pil_images_are_decoded_alike():
    image = Image.open(io.BytesIO(READABLE["turned 6.jpg"]))
    assert np.array_equal(open_photo(image, LIMIT), open_photo(READABLE["turned 6.jpg"], LIMIT))


def test_a_path_is_opened_alike_and_named_in_the_message(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(READABLE["turned 6.jpg"])
    assert np.array_equal(open_photo(path), open_photo(READABLE["turned 6.jpg"], LIMIT))
    path.write_bytes(b"")
    with refuses("empty"):
        open_photo(path)


def calls_of(tree: ast.AST, attribute: str) -> list[str]:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [ast.unparse(call) for call in calls if isinstance(call, ast.Attribute) and call.attr == attribute]


def test_no_other_module_opens_images():
    """The allow-list and the pixel limit hold wherever photos are opened, because one function opens them."""
    package = Path(opening.__file__).parent.parent
    found = {}
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text("utf8"))
        if opened := [call for call in calls_of(tree, "open") if "Image" in call]:
            found[path.relative_to(package).as_posix()] = opened
        imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        for node in imported:
            if node.module == "PIL.Image":
                found[path.relative_to(package).as_posix()] = [alias.name for alias in node.names]
    assert found == {"photos/decode.py": ["Image.open"]}


SEEDS = [
    READABLE[name]
    for name in ("plain.jpg", "animated.gif", "alpha.png", "turned 6.tif", "plain.webp", "plain.bmp")
]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SEEDS), st.integers(0, 2**32), st.integers(0, 12), st.floats(0, 1))
def test_whatever_is_in_a_file_nothing_but_a_reason_comes_out(data, seed, changes, cut):
    damaged, rng = bytearray(data), random.Random(seed)
    for _ in range(changes):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    if rng.random() < 0.5:
        damaged = damaged[: int(cut * len(damaged))]
    with suppress(UnreadableImage):
        assert open_photo(bytes(damaged), 1_000_000, side=32).mode == "RGB"
