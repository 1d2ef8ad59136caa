"""Every format shows the same picture, and what cannot be read says what to install."""

import io
import os
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import make_formats
import numpy as np
import odd_images
import pytest
from fishermix_photos.photos import decode, formats
from fishermix_photos.photos import open as opening
from fishermix_photos.photos.formats import (
    FORMATS,
    explain_missing,
    explain_skipped,
    find_format,
    split_place,
)
from fishermix_photos.photos.open import UnreadableImage, list_photos, open_photo
from PIL import Image
from refuses import refuses

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning:PIL")  # Pillow comments on damage
LIMIT = 10_000_000
PICTURE = odd_images.four_colours(320, 240)


def corners(image):
    width, height = image.size
    places = [(x, y) for y in (height // 4, 3 * height // 4) for x in (width // 4, 3 * width // 4)]
    return np.array([image.getpixel(place) for place in places], float)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("tifffile")
    folder = tmp_path_factory.mktemp("formats")
    make_formats.make_folder(folder, PICTURE)
    return folder


@pytest.mark.parametrize("name", list(make_formats.MAKERS))
def test_every_format_shows_the_picture(folder, name):
    if not (folder / name).exists():
        pytest.skip(f"{make_formats.MAKERS[name][0]} is not installed here")
    image = open_photo(folder / name, LIMIT, side=100)
    assert image.mode == "RGB"
    # LibRaw balances and stretches; all others keep the colors.
    assert np.abs(corners(image) - corners(PICTURE)).max() <= (60 if name == "raw.dng" else 16)


@pytest.mark.parametrize("name", [name for name in make_formats.MAKERS if name != "clip.mp4"])
def test_bytes_and_paths_are_read_alike(folder, name):
    if not (folder / name).exists():
        pytest.skip(f"{make_formats.MAKERS[name][0]} is not installed here")
    data = (folder / name).read_bytes()
    assert np.array_equal(open_photo(data, LIMIT, side=100), open_photo(folder / name, LIMIT, side=100))


@pytest.mark.parametrize("name", list(make_formats.MAKERS))
def test_every_format_obeys_the_limits_and_survives_damage(folder, name, tmp_path):
    if not (folder / name).exists():
        pytest.skip(f"{make_formats.MAKERS[name][0]} is not installed here")
    with refuses("too_large"):
        open_photo(folder / name, 100)
    data = (folder / name).read_bytes()
    for cut in (12, 40, len(data) // 3):
        damaged = tmp_path / name
        damaged.write_bytes(data[:cut])
        with suppress(UnreadableImage):
            assert open_photo(damaged, LIMIT, side=100).mode == "RGB"


def test_a_heic_photo_is_turned_once():
    pytest.importorskip("pillow_heif")
    exif = Image.Exif()
    exif[0x0112] = 6
    data = make_formats.make_heic(odd_images.as_stored(PICTURE, 6), exif=exif.tobytes())
    image = open_photo(data, LIMIT)
    assert image.size == PICTURE.size
    assert np.abs(corners(image) - corners(PICTURE)).max() <= 16


def test_the_thumbnail_of_a_heic_photo_serves_if_it_is_large_enough():
    pytest.importorskip("pillow_heif")
    large = odd_images.four_colours(1600, 1200)
    data = make_formats.make_heic(large, thumbnails=[320])
    assert open_photo(data, LIMIT, side=292).size == (320, 240)  # as phones write them
    assert open_photo(data, LIMIT, side=480).size == (1600, 1200)
    assert open_photo(data, LIMIT).size == (1600, 1200)
    assert np.abs(corners(open_photo(data, LIMIT, side=292)) - corners(large)).max() <= 16


@pytest.mark.parametrize(("orientation", "size"), [(1, (160, 120)), (6, (120, 160)), (3, (160, 120))])
def test_a_raw_photo_is_developed_upright(orientation, size):
    pytest.importorskip("rawpy")
    image = open_photo(make_formats.make_dng(PICTURE, orientation), LIMIT)
    assert image.size == size
    wanted = open_photo(odd_images.turned(PICTURE, 1, "PNG"), LIMIT)
    turned = {1: wanted, 3: wanted.transpose(Image.Transpose.ROTATE_180)}
    turned[6] = wanted.transpose(Image.Transpose.ROTATE_270)
    assert np.abs(corners(image) - corners(turned[orientation])).max() <= 60


def test_a_video_has_a_photo_per_scene(tmp_path):
    pytest.importorskip("av")
    scenes = [Image.new("RGB", (160, 120), color) for color in ("red", "blue", "white")]
    path = tmp_path / "clip.mp4"
    path.write_bytes(make_formats.make_video(scenes, seconds_each=10))
    places = list_photos(path)
    times = [split_place(place).time for place in places]
    assert places[0] == str(path)
    assert len(places) == 3  # the frames 4 s later show nothing new
    assert times == sorted(times)
    for place, time, start, scene in zip(places, times, (0, 10, 20), scenes):
        assert start <= time < start + 4
        assert np.abs(corners(open_photo(place)) - corners(scene)).max() <= 16


def test_pages_are_photos_and_thumbnails_are_not(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    path = tmp_path / "scan.tif"
    pages = [Image.new("RGB", (160, 120), color) for color in ("red", "blue", "white")]
    path.write_bytes(make_formats.make_pages(pages))
    assert list_photos(path) == [str(path), f"{path}#page=2", f"{path}#page=3"]
    for place, page in zip(list_photos(path), pages):
        assert np.array_equal(open_photo(place), page)
    with refuses("no_page"):
        open_photo(f"{path}#page=4")
    with tifffile.TiffWriter(path) as file:
        file.write(np.zeros((12, 16, 3), np.uint8), photometric="rgb", subfiletype=1)
        file.write(np.asarray(PICTURE), photometric="rgb")
    assert list_photos(path) == [str(path)]
    assert np.array_equal(open_photo(path), PICTURE)


def test_only_videos_and_tiff_files_hold_several_photos():
    assert split_place("a/clip.MP4#t=12.5") == ("a/clip.MP4", 12.5, None)
    assert split_place("scan.tif#page=2") == ("scan.tif", None, 2)
    for name in ("photo.jpg#t=1", "clip.mp4#page=2", "scan.tif#t=1", "clip.mp4#t=1.jpg", "a#b.png"):
        assert split_place(name).file == name
        assert split_place(name).page is None
    assert split_place("clip.mp4") == ("clip.mp4", 0.0, None)
    assert split_place("scan.tif") == ("scan.tif", None, None)
    assert split_place(f"scan.tif#page={'9' * 400}").page is None


def large_jpeg(width, height, **options):
    return odd_images.encoded(Image.new("RGB", (width, height), odd_images.RED), "JPEG", **options)


@pytest.mark.slow
def test_a_jpeg_of_200_megapixels_is_decoded_reduced():
    image = open_photo(large_jpeg(16_320, 12_240), 24_000_000, side=260)
    assert image.size == (2040, 1530)
    assert np.abs(np.array(image.getpixel((9, 9))) - odd_images.RED).max() <= 3


def test_what_is_decoded_at_its_full_size_obeys_the_limit():
    data = large_jpeg(4000, 3000)
    assert max(open_photo(data, 1_000_000, side=100).size) == 500
    with refuses("too_large"):
        open_photo(data, 1_000_000)
    with refuses("too_large"):
        open_photo(data, 700_000, side=100)  # more than 16 times the limit
    # libjpeg keeps the coefficients of a progressive JPEG whole.
    with refuses("too_large"):
        open_photo(large_jpeg(4000, 3000, progressive=True), 1_000_000, side=100)


def test_the_default_limit_can_be_set(monkeypatch):
    monkeypatch.setattr(opening, "_chosen_max_pixels", None)
    data = odd_images.encoded(PICTURE, "PNG")
    opening.set_default_max_pixels(1000)
    with refuses("too_large"):
        open_photo(data)
    opening.set_default_max_pixels(100_000)
    assert open_photo(data).size == PICTURE.size


@pytest.mark.parametrize("name", ["IMG_0001.HEIC", "photo.jxl", "raw.dng", "clip.mp4"])
def test_a_missing_package_is_named(folder, name, monkeypatch):
    monkeypatch.setattr(formats, "_has_module", lambda module: False)
    monkeypatch.setattr(
        "fishermix_photos.photos.open.is_bounded", lambda data: True
    )  # it would not see the line above
    with refuses("missing_package") as caught:
        open_photo(folder / name)
    assert caught.value.may_change


def test_skipped_files_are_counted_by_kind(monkeypatch, tmp_path):
    assert explain_skipped({".cr3": 37, ".psd": 1, ".mp4": 1200}) == [
        "37 .cr3 files were skipped: pip install 'fishermix-photos[raw]'.",
        "1,200 .mp4 files were skipped: pip install 'fishermix-photos[video]'.",
        "1 .psd file was skipped: fishermix does not read this format.",
    ]
    (tmp_path / "pipx_metadata.json").touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    command = "pipx runpip fishermix-photos install 'fishermix-photos[raw]'"
    assert explain_skipped({".cr3": 2}) == [f"2 .cr3 files were skipped: {command}."]


@pytest.mark.parametrize("format", [format for format in FORMATS if format.extra], ids=lambda one: one.name)
def test_each_format_has_its_extra(format):
    from importlib.metadata import metadata

    assert format.extra in metadata("fishermix-photos").get_all("Provides-Extra")
    assert explain_missing(format) == f"pip install 'fishermix-photos[{format.extra}]'"


def test_the_table_has_each_suffix_once_and_pillow_knows_no_program_runner():
    suffixes = [suffix for one in (*FORMATS, formats.UNSUPPORTED) for suffix in one.suffixes]
    assert len(suffixes) == len(set(suffixes))
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in suffixes)
    for suffix in [".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2"]:
        assert find_format(f"x{suffix.upper()}") is formats.RAW
    assert "EPS" not in decode.PILLOW_FORMATS


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\0\0\0\x18ftypcrx \0\0\0\1crx isom", "RAW"),
        (b"FUJIFILMCCD-RAW 0201", "RAW"),
        (b"IIRO\x08\0\0\0", "RAW"),
        (b"IIU\0\x18\0\0\0", "RAW"),
        (b"II*\0\x10\0\0\0CR\2\0", "RAW"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "HEIC"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif", "AVIF"),
        (b"\0\0\0\x18ftypisom\0\0\0\0isommp41", ""),
        (b"\x89PNG\r\n\x1a\n", ""),
        (b"", ""),
    ],
)
def test_the_first_bytes_show_the_format(head, name):
    assert decode.sniff_format(head) == name


def test_a_raw_preview_is_used_before_the_sensor(monkeypatch):
    """The preview that LibRaw gives is turned as the camera was, if it has no EXIF of its own."""
    rawpy = pytest.importorskip("rawpy")
    stored = odd_images.as_stored(PICTURE, 6)
    buffer = io.BytesIO()
    stored.save(buffer, "JPEG", quality=95)

    class Raw:
        sizes = SimpleNamespace(width=640, height=480, flip=6)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def extract_thumb(self):
            return SimpleNamespace(format=rawpy.ThumbFormat.JPEG, data=buffer.getvalue())

    monkeypatch.setattr(rawpy, "imread", lambda file: Raw())
    image = decode.decode_bytes(make_formats.make_dng(PICTURE), LIMIT, 100)
    assert image.size == PICTURE.size
    assert np.abs(corners(image) - corners(PICTURE)).max() <= 16


def test_no_file_is_left_open(folder):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    for path in folder.iterdir():
        open_photo(path, LIMIT, side=100)
        list_photos(path)
    # Only photos are counted: workers, and other tests of this process, open pipes of their own meanwhile.
    open_files = {Path(os.path.realpath(f"/proc/self/fd/{fd}")) for fd in os.listdir("/proc/self/fd")}
    assert not {file for file in open_files if file.parent == folder.resolve()}


@pytest.mark.parametrize(("suffix", "kind"), [(".heic", "HEIC"), (".avif", "AVIF")])
def test_large_photos_of_modern_formats_are_reduced_to_what_the_network_needs(tmp_path, suffix, kind):
    photo = PICTURE.resize((1400, 1050))
    make = {
        "HEIC": make_formats.make_heic,
        "AVIF": lambda image: make_formats.to_bytes(image, "AVIF", speed=10),
    }
    content = make[kind](photo)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    assert open_photo(path).size == (1400, 1050)
    reduced = open_photo(path, side=200)
    assert reduced.size == (700, 525)
    plain = open_photo(path).resize(reduced.size, Image.Resampling.BOX)
    assert np.abs(np.asarray(plain, float) - np.asarray(reduced, float)).mean() < 1
    assert open_photo(path, side=600).size == (1400, 1050)


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mov", "clip.mkv"])
def test_a_video_that_lists_other_files_is_not_followed(tmp_path, name):
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "secret.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=1)
        stream.width = stream.height = 64
        for packet in [*stream.encode(av.VideoFrame.from_image(PICTURE.resize((64, 64)))), *stream.encode()]:
            container.mux(packet)
    assert open_photo(tmp_path / "secret.mp4").size == (64, 64)
    (tmp_path / name).write_text("ffconcat version 1.0\nfile secret.mp4\n")
    with pytest.raises(UnreadableImage):
        open_photo(tmp_path / name)
    assert list_photos(tmp_path / name) == [str(tmp_path / name)]
