"""`fishermix duplicates` finds copies and no other photos."""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fishermix_photos.index.duplicates import (
    GRAY_SIDE,
    HASH_SIDE,
    MOST_DIFFERENT_BITS,
    _find_alike,
    hash_pixels,
    rank_copy,
)
from fishermix_photos.model.saved import SHIPPED
from fishermix_photos.photos.details import Details
from PIL import Image, ImageEnhance
from skimage import data
from tiny_model import paint


@pytest.fixture
def folder(tmp_path):
    """Two photos with copies, and a third without."""
    place = tmp_path / "photos"
    place.mkdir()
    cat, cup = Image.fromarray(data.chelsea()), Image.fromarray(data.coffee())
    cat.save(place / "cat.png")
    shutil.copy(place / "cat.png", place / "cat copy.png")
    cat.resize((225, 150)).save(place / "cat small.jpg", quality=70)
    ImageEnhance.Brightness(cat).enhance(1.1).save(place / "cat bright.webp")
    cup.save(place / "cup.jpg", quality=95)
    cup.save(place / "cup 40.jpg", quality=40)
    Image.fromarray(data.astronaut()).save(place / "woman.png")
    return place


def test_a_new_folder_is_announced_before_it_is_added(tiny, photos, tmp_path):
    tiny("duplicates", photos)
    assert tiny.remarks[0] == f"Adding 8 photos of {photos} to your library first."
    tiny.remarks.clear()
    tiny("duplicates", photos)
    tiny("search", "red", photos / "sub")
    (tmp_path / "empty").mkdir()
    tiny("duplicates", tmp_path / "empty")
    paint(tmp_path / "more" / "red.png", "red")
    assert "no word" in tiny("search", "zorblax", tmp_path / "more", fails=True)  # and adds nothing
    tiny("duplicates", tmp_path / "more", "--no-update")
    assert not any(line.startswith("Adding") for line in tiny.remarks)
    tiny("search", "red", photos, tmp_path / "more")
    assert f"Adding 1 photo of {tmp_path / 'more'} to your library first." in tiny.remarks


@pytest.mark.slow
def test_groups_are_copies_with_the_largest_first(tiny, folder):
    groups = json.loads(tiny("duplicates", folder, "--json"))
    names = [[entry["path"].removeprefix(f"{folder}/") for entry in group["photos"]] for group in groups]
    assert names == [
        ["cat.png", "cat copy.png", "cat bright.webp", "cat small.jpg"],
        ["cup.jpg", "cup 40.jpg"],
    ]
    assert [group["exact"] for group in groups] == [False, False]
    assert groups[0]["photos"][-1]["width"] == 225
    text = tiny("duplicates", folder)
    assert text.split("\n\n")[1] == f"{folder}/cup.jpg\n{folder}/cup 40.jpg\n"


def test_exact_copies_for_pipes(tiny, folder):
    assert tiny("duplicates", folder, "--exact", "-0") == f"{folder}/cat.png\0{folder}/cat copy.png\0"
    assert tiny("duplicates", folder, "--exact", "--omit-first", "-0") == f"{folder}/cat copy.png\0"
    [group] = json.loads(tiny("duplicates", folder, "--exact", "--json"))
    assert group["exact"] is True


def save_photo(path, size=64, quality=90, has_exif=False, seconds=1000, noise=25):
    """A picture of waves, always the same one."""
    x, y = np.meshgrid(np.linspace(0, 5, 64), np.linspace(0, 3, 64))
    waves = 128 + 100 * np.sin(x * x + y)[..., None] * [1, 0.8, 0.5]
    pixels = np.clip(waves + np.random.default_rng(0).normal(0, noise, (64, 64, 3)), 0, 255).astype(np.uint8)
    exif = Image.Exif()
    if has_exif:
        exif[306], exif[271] = "2012:07:14 10:00:00", "Canon"
    Image.fromarray(pixels).resize((size, size)).save(path, quality=quality, exif=exif)
    os.utime(path, (seconds, seconds))


@pytest.mark.parametrize(
    ("reason", "best", "other"),
    [
        ("larger", {"size": 64, "quality": 40}, {"size": 48, "quality": 95, "has_exif": True, "seconds": 1}),
        ("has_exif", {"has_exif": True, "quality": 80}, {"quality": 95, "seconds": 1}),
        ("less_compressed", {"quality": 95}, {"quality": 60, "seconds": 1}),
        ("less_compressed", {"quality": 95, "has_exif": True}, {"quality": 50, "has_exif": True}),
        ("older", {"seconds": 1}, {"seconds": 1000}),
    ],
)
@pytest.mark.parametrize("names", [("a.jpg", "b.jpg"), ("b.jpg", "a.jpg"), ("photo (1).jpg", "a.jpg")])
def test_the_better_copy_is_kept_with_a_reason(tiny, tmp_path, reason, best, other, names):
    save_photo(tmp_path / names[0], **best)
    save_photo(tmp_path / names[1], **other)
    [group] = json.loads(tiny("duplicates", tmp_path, "--json"))
    assert [Path(photo["path"]).name for photo in group["photos"]] == list(names)
    assert group["reason"] == reason


@pytest.mark.parametrize(
    "name", ["cup_copy", "cup - Copy (2)", "Copy of cup", "cup (1)", "KOPIE cup", "cup_copy2"]
)
def test_of_equal_files_the_older_is_kept_then_the_one_that_is_not_named_as_a_copy(name, tmp_path):
    original, copy = tmp_path / "the original, a photocopy of a cup.png", tmp_path / f"{name}.png"
    for path in (original, copy):
        path.touch()
        os.utime(path, (9, 9))
    ranks = [rank_copy(path, Details()) for path in (original, copy)]
    assert ranks[0] < ranks[1]
    assert ranks[0].tell_from(ranks[1]) == "original_name"
    os.utime(copy, (0, 0))
    assert rank_copy(copy, Details()) < rank_copy(original, Details())


def test_all_pairs_of_similar_fingerprints_are_found():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, (200, 4), np.uint64)
    for number in range(0, 60, 2):  # copies that differ in up to 60 bits
        flipped = rng.permutation(256)[:number]
        bits = np.unpackbits(words[number].view(np.uint8))
        bits[flipped] ^= 1
        words[number + 1] = np.packbits(bits).view(np.uint64)
    numbers = [int.from_bytes(row.tobytes()) for row in words]
    expected = [
        (first, second)
        for second in range(len(numbers))
        for first in range(second)
        if (numbers[first] ^ numbers[second]).bit_count() <= MOST_DIFFERENT_BITS
    ]
    assert sorted(_find_alike(words)) == sorted(expected)
    assert len(expected) == 25


@pytest.mark.slow
@pytest.mark.skipif(not (SHIPPED / "config.json").is_file(), reason="no model in the package yet")
def test_a_terminal_shows_why_the_first_is_kept(tmp_path):
    save_photo(tmp_path / "a.jpg", size=48)
    save_photo(tmp_path / "b.jpg", size=64)
    command = [sys.executable, "-m", "fishermix_photos", "duplicates", str(tmp_path)]
    environment = os.environ | {"FISHERMIX_HOME": str(tmp_path / "home")}
    piped = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert piped == f"{tmp_path}/b.jpg\n{tmp_path}/a.jpg\n"
    ours, theirs = pty.openpty()
    subprocess.run(command, env=environment, stdout=theirs, stderr=subprocess.DEVNULL, check=True)
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert shown.replace("\r", "").endswith(f":\n{piped}")
    assert "larger" in shown


def test_a_subfolder_and_a_folder_without_duplicates(tiny, folder):
    shutil.copy(folder / "cup.jpg", folder / "twin.jpg")
    (folder / "sub").mkdir()
    shutil.copy(folder / "woman.png", folder / "sub" / "a.png")
    shutil.copy(folder / "woman.png", folder / "sub" / "b.png")
    tiny("library", "add", folder)
    assert tiny("duplicates", folder / "sub", "--exact") == f"{folder}/sub/a.png\n{folder}/sub/b.png\n"
    (folder / "sub" / "b.png").unlink()
    assert tiny("duplicates", folder / "sub") == ""


def test_plain_surfaces_are_no_copies_of_each_other(tiny, tmp_path):
    paint(tmp_path / "p" / "a.png", "red", size=(40, 40))
    paint(tmp_path / "p" / "b.png", "red", size=(44, 40))
    assert tiny("duplicates", tmp_path / "p") == ""


def test_the_hash_is_the_sign_of_the_cosine_transform():
    gray = np.random.default_rng(0).integers(0, 256, (GRAY_SIDE, GRAY_SIDE)).astype(float)
    at, found = np.arange(GRAY_SIDE) + 0.5, []
    for u in range(HASH_SIDE):
        for v in range(HASH_SIDE):
            wave = np.outer(np.cos(np.pi * u * at / GRAY_SIDE), np.cos(np.pi * v * at / GRAY_SIDE))
            found.append((wave * gray).sum() > 0)
    np.testing.assert_array_equal(hash_pixels(gray), found[1:])


def test_the_last_copy_is_never_listed_as_one_too_many(tiny, folder):
    tiny("duplicates", folder, "--exact")
    (folder / "cat copy.png").unlink()
    assert tiny("duplicates", folder, "--exact", "--no-update", "--omit-first", "-0") == ""


def test_the_photo_that_knows_when_it_was_taken_is_the_original(tiny, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    exif = Image.Exif()
    exif[306] = "2012:07:14 10:00:00"
    Image.fromarray(pixels).save(tmp_path / "taken (1).png", exif=exif)
    Image.fromarray(pixels).save(tmp_path / "stripped.png")
    os.utime(tmp_path / "stripped.png", (0, 0))
    found = json.loads(tiny("duplicates", tmp_path, "--json"))
    names = [Path(photo["path"]).name for photo in found[0]["photos"]]
    assert names == ["taken (1).png", "stripped.png"]


def test_copies_in_several_folders(tiny, folder, tmp_path, monkeypatch):
    """A photo is no copy of itself, however often its folder is named."""
    backup = tmp_path / "backup"
    backup.mkdir()
    photo = next(path for path in sorted(folder.rglob("*.*")) if path.is_file())
    shutil.copy2(photo, backup / "saved.jpg")
    assert "saved.jpg" not in tiny("duplicates", folder, "--exact")
    found = json.loads(tiny("duplicates", backup, folder, folder, "--exact", "--json"))
    paths = [one["path"] for group in found for one in group["photos"]]
    assert len(paths) == len(set(paths))
    together = [{one["path"] for one in group["photos"]} for group in found]
    assert any({str(photo), f"{backup}/saved.jpg"} <= group for group in together)
    monkeypatch.chdir(tmp_path)
    printed = tiny("duplicates", "backup", folder.name, "--exact").splitlines()
    assert "backup/saved.jpg" in printed
    assert str(photo.relative_to(tmp_path)) in printed
