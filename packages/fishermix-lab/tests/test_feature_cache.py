import multiprocessing
import os
import random
import sqlite3
import time
from pathlib import Path

import numpy as np
import odd_images
import pytest
from fishermix_lab.features import FEATURES_FILE, extract
from fishermix_photos.model.image_encoder import ImageEncoder
from killed_extraction import extract_often_committing
from PIL import Image
from refuses import refuses


@pytest.fixture
def photos(tmp_path, pictures) -> list[Path]:
    """Twelve files, two hours old, as photographs mostly are."""
    folder = tmp_path / "photos"
    folder.mkdir()
    return [written(folder / f"{i:03}.jpg", picture) for i, picture in enumerate(pictures[:12])]


def written(path: Path, data: bytes, age: float = 7200) -> Path:
    path.write_bytes(data)
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_rows_are_those_of_the_encoder_in_the_order_of_the_paths(tmp_path, tiny, photos):
    encoder = ImageEncoder(tiny)
    result = extract(photos, encoder, tmp_path / "out")
    assert np.array_equal(result.features, encoder.transform(photos))
    assert (result.encoded, result.failed) == (12, {})
    backwards = extract([*photos[::-1], photos[3]], encoder, tmp_path / "out")
    assert np.array_equal(backwards.features, np.vstack([result.features[::-1], result.features[3]]))
    assert backwards.encoded == 0


def test_nothing_unchanged_is_encoded_again(tmp_path, tiny, photos, monkeypatch):
    encoder = ImageEncoder(tiny)
    first = extract(photos, encoder, tmp_path / "out")
    monkeypatch.setattr(
        ImageEncoder, "stream", lambda _, images: iter([pytest.fail("encoded") for _ in images])
    )
    assert np.array_equal(extract(photos, encoder, tmp_path / "out").features, first.features)


def test_a_moved_or_copied_photo_is_not_encoded_again(tmp_path, tiny, photos, pictures):
    encoder = ImageEncoder(tiny)
    first = extract(photos, encoder, tmp_path / "out")
    moved = photos[0].rename(tmp_path / "moved.jpg")
    copy = written(tmp_path / "copy.jpg", pictures[1])
    result = extract([moved, copy], encoder, tmp_path / "out")
    assert result.encoded == 0
    assert np.array_equal(result.features, first.features[:2])


def test_two_files_of_one_content_are_encoded_once(tmp_path, tiny, pictures):
    twins = [written(tmp_path / name, pictures[0]) for name in ("a.jpg", "b.jpg")]
    result = extract(twins, ImageEncoder(tiny), tmp_path / "out")
    assert result.encoded == 1
    assert np.array_equal(result.features[0], result.features[1])


def test_a_changed_photo_is_encoded_again(tmp_path, tiny, photos, pictures):
    encoder = ImageEncoder(tiny)
    before = extract(photos, encoder, tmp_path / "out").features
    written(photos[5], pictures[20])
    result = extract(photos, encoder, tmp_path / "out")
    assert result.encoded == 1
    assert np.array_equal(result.features, encoder.transform(photos))
    assert not np.array_equal(result.features[5], before[5])


def test_encoders_share_a_folder_and_not_their_rows(tmp_path, tiny, photos):
    encoders = [ImageEncoder(tiny, view=view) for view in ("squeeze", "flip")]
    for encoder in encoders * 2:
        result = extract(photos, encoder, tmp_path / "out")
        assert np.array_equal(result.features, encoder.transform(photos))
    assert result.encoded == 0


@pytest.mark.filterwarnings("ignore:.*:UserWarning:PIL")
def test_failures_are_reported_and_leave_no_row(tmp_path, tiny):
    good, bad = odd_images.make_folder(tmp_path / "odd")
    encoder = ImageEncoder(tiny)
    first = extract([*bad, *good], encoder, tmp_path / "out")
    assert set(first.failed) == {str(path) for path in bad}
    assert all(first.failed.values())
    assert np.isnan(first.features[: len(bad)]).all()
    assert np.isfinite(first.features[len(bad) :]).all()
    again = extract([*bad, *good], encoder, tmp_path / "out")
    assert again.encoded == 0
    assert again.failed == first.failed
    assert np.array_equal(again.features, first.features, equal_nan=True)


def test_a_raised_limit_tries_again_what_was_too_large(tmp_path, tiny, monkeypatch):
    path = written(tmp_path / "large.png", odd_images.encoded(Image.new("RGB", (100, 80)), "PNG"))
    small = extract([path], ImageEncoder(tiny, max_pixels=7999), tmp_path / "out")
    assert "--max-pixels" in small.failed[str(path)]
    assert extract([path], ImageEncoder(tiny, max_pixels=8000), tmp_path / "out").failed == {}


def test_a_damaged_cache_is_explained(tmp_path, tiny, photos):
    encoder, folder = ImageEncoder(tiny), tmp_path / "out"
    extract(photos, encoder, folder)
    (folder / FEATURES_FILE).write_bytes(b"something else entirely, but long enough to look like a file" * 99)
    with refuses("wrong_folder"):
        extract(photos, encoder, folder)
    with refuses("wrong_folder"):
        extract(photos, encoder, photos[0])


def finished(folder: Path) -> int:
    if not (folder / FEATURES_FILE).exists():
        return 0
    database = sqlite3.connect(folder / FEATURES_FILE)
    tables = database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'vectors'").fetchone()[0]
    rows = database.execute("SELECT count(*) FROM vectors").fetchone()[0] if tables else 0
    database.close()
    return rows


@pytest.mark.slow
def test_twenty_kills_leave_no_trace(tmp_path, tiny):
    """kill -9 at random moments, then go on: what was finished stays finished, and every bit is the same."""
    rng = np.random.default_rng(1)
    photos = []
    for i in range(300):
        rough = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8)).resize((240, 180))
        photos.append(written(tmp_path / f"{i}.jpg", odd_images.encoded(rough, "JPEG")))
    photos[150].write_bytes(b"not a photograph")
    encoder = ImageEncoder(tiny)
    undisturbed = extract(photos, encoder, tmp_path / "undisturbed")

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fishermix_lab.features", "onnxruntime", "pytest"])
    moments, done = random.Random(0), [0]
    for _ in range(20):
        count, last = context.Value("i", 0), moments.randrange(25)
        arguments = (photos, tiny, tmp_path / "killed", count)
        process = context.Process(target=extract_often_committing, args=arguments)
        process.start()
        while count.value < last and process.is_alive():
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.02))
        process.kill()  # SIGKILL; no matter if it has just ended
        process.join()
        done.append(finished(tmp_path / "killed"))
        assert done[-1] >= done[-2]
    assert len(set(done)) > 5, f"the kills did not fall into the work: {done}"

    resumed = extract(photos, encoder, tmp_path / "killed")
    assert resumed.encoded == 299 - done[-1]
    assert resumed.failed == undisturbed.failed
    assert np.array_equal(resumed.features, undisturbed.features, equal_nan=True)
