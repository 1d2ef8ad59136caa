"""The reason why a photo is unreadable is in words for its owner, not in those of a decoder."""

import struct
import subprocess
import sys

import numpy as np
import pytest
from fishermix_photos.photos import formats
from fishermix_photos.photos.formats import UnreadableImage
from fishermix_photos.photos.open import list_photos, open_photo
from make_formats import make_dng, make_heic, make_jxl, make_video, to_bytes
from PIL import Image
from refuses import refuses

IMAGE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (24, 32, 3)).astype(np.uint8))
LOOP = b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHII", 330, 4, 1, 8) + (8).to_bytes(4, "little")
OTHER_TIFF = "the file is damaged, or a kind of TIFF that fishermix does not read"
BAD = {  # name: the format, the bytes, the reason
    "loop.tif": ("TIFF", lambda: LOOP, OTHER_TIFF),
    "garbage.tif": ("TIFF", lambda: b"II*\0garbage" * 20, OTHER_TIFF),
    "header.dng": ("RAW", lambda: make_dng(IMAGE)[:200], OTHER_TIFF),
    "half.dng": ("RAW", lambda: make_dng(IMAGE)[:1000], "the file is damaged"),
    "garbage.mp4": ("video", lambda: b"garbage" * 100, "the file is damaged"),
    "half.mp4": ("video", lambda: make_video([IMAGE])[:700], "the file is damaged"),
    "half.heic": ("HEIC", lambda: make_heic(IMAGE)[: len(make_heic(IMAGE)) // 2], "the file is truncated"),
    "half.jxl": ("JPEG XL", lambda: make_jxl(IMAGE)[:50], "the file is damaged"),
    "half.jpg": ("JPEG", lambda: to_bytes(IMAGE, "JPEG")[:300], "the file is truncated"),
    "half.png": ("PNG", lambda: to_bytes(IMAGE, "PNG")[:300], "the file is truncated"),
    "half.webp": ("WebP", lambda: to_bytes(IMAGE, "WEBP")[:100], "the file is damaged"),
    "letters.ppm": ("PPM", lambda: b"P6 10 x", "the file is damaged"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_reason_is_one_plain_sentence(tmp_path, name):
    kind, make, reason = BAD[name]
    if not formats._BY_NAME[kind].is_installed:
        pytest.skip(f"{kind} is not installed")
    path = tmp_path / name
    path.write_bytes(make())
    assert list_photos(path)
    with pytest.raises(UnreadableImage) as caught:
        open_photo(path)
    assert caught.value.reason == reason
    assert str(caught.value) == f"Cannot read {path}: {reason}."


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_a_planar_tiff_is_a_photo_or_refused(tmp_path, dtype):
    tifffile = pytest.importorskip("tifffile")
    top = 1 if dtype is np.float32 else np.iinfo(dtype).max
    planes = (np.asarray(IMAGE, np.float64) / 255 * top).astype(dtype).transpose(2, 0, 1)
    tifffile.imwrite(
        tmp_path / "planar.tif", planes, photometric="rgb", planarconfig="separate", metadata=None
    )
    if dtype is np.uint8:
        assert np.array_equal(open_photo(tmp_path / "planar.tif"), IMAGE)
    else:  # Pillow mixes up the bytes of 16 bits
        with refuses("unsupported"):
            open_photo(tmp_path / "planar.tif")


def test_damaged_metadata_reach_no_terminal(tmp_path):
    exif = Image.Exif()
    exif[0x010F] = "Maker"
    exif.get_ifd(0x8769)[0x9003] = "2014:05:06 07:08:09"
    data = to_bytes(IMAGE, "JPEG", exif=exif.tobytes()[:-12])
    (tmp_path / "a.jpg").write_bytes(data)
    tiff = bytearray(to_bytes(IMAGE, "TIFF"))
    entry = tiff.index(struct.pack("<HH", 258, 3))  # its values lie beyond the end of the file
    tiff[entry + 4 : entry + 12] = struct.pack("<II", 3, 2**31 - 1)
    (tmp_path / "b.tif").write_bytes(tiff)
    code = (
        "import sys\n"
        "from fishermix_photos.photos.open import list_photos, open_photo, read_metadata\n"
        "for path in sys.argv[1:]:\n"
        "    list_photos(path), read_metadata(path)\n"
        "    try:\n        open_photo(path)\n    except ValueError:\n        pass\n"
    )
    paths = [str(path) for path in sorted(tmp_path.iterdir())]
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, check=True)
    assert done.stderr == b""
