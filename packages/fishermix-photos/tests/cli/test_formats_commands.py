"""What the commands say about formats, files that are skipped, and small things that were wrong."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys

import pytest
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.photos import formats
from fishermix_photos.photos.open import open_photo
from fishermix_photos.search.results import Photo, Query, Results
from PIL import Image
from tiny_model import COLOURS, TinyImageEncoder, paint


@pytest.fixture
def without_packages(monkeypatch):
    monkeypatch.setattr(formats, "_has_module", lambda module: module == "pillow_heif")


RAW_SKIPPED = "3 .cr3 files were skipped: pip install 'fishermix-photos[raw]'."


def test_skipped_files_are_reported_by_search_add_and_list(tiny, photos, remarks, without_packages):
    for name in ("1.cr3", "2.CR3", "sub/3.cr3"):
        (photos / name).write_bytes(b"x")
    tiny("library", "add", photos)
    assert RAW_SKIPPED in remarks
    remarks.clear()
    tiny("search", "red", photos)
    assert RAW_SKIPPED not in remarks  # reported before
    (photos / "2.CR3").unlink()
    paint(photos / "new.png", "red", "blue")
    for _ in range(2):
        tiny("search", "red", photos)
    assert [remark for remark in remarks if "skipped" in remark] == [RAW_SKIPPED.replace("3", "2", 1)]
    (photos / "2.CR3").write_bytes(b"x")
    assert f"  {RAW_SKIPPED}" in tiny("library", "list", photos).splitlines()
    assert json.loads(tiny("library", "list", photos, "--json"))[0]["skipped"] == {".cr3": 3}


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may read everything")
def test_list_shows_folders_that_cannot_be_read(tiny, photos):
    tiny("library", "add", photos)
    (photos / "sub").chmod(0)
    try:
        assert "sub/: cannot be read" in tiny("library", "list", photos)
    finally:
        (photos / "sub").chmod(0o755)


def test_list_shows_everything_that_an_update_reported(tiny, photos, monkeypatch):
    """The folder is unreadable for the listing only, so that this also holds for the superuser."""
    scandir = os.scandir

    def refuse(folder):
        if str(folder).endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    (photos / "broken.jpg").write_bytes(b"x")
    tiny("library", "add", photos)
    listed = tiny("library", "list", photos)
    assert "unreadable  2" in listed
    assert f"  {photos}/sub/: cannot be read (Permission denied)" in listed
    assert f"  {photos}/broken.jpg: " in listed
    assert listed.count("broken.jpg") == 1
    assert set(json.loads(tiny("library", "list", photos, "--json"))[0]["unreadable"]) == {
        f"{photos}/sub/",
        f"{photos}/broken.jpg",
    }


def test_hints_quote_paths(tiny, photos, remarks):
    folder = photos.rename(photos.parent / "my photos")
    (folder / "broken.jpg").write_bytes(b"x")
    tiny("search", "red", folder)
    command = next(remark for remark in remarks if "unreadable" in remark).split("`")[1]
    assert shlex.split(command) == ["fishermix", "library", "list", str(folder)]


@pytest.mark.parametrize("query", [["-", "sub"], ["+", "sub"], ["red", "-", "sub"]])
def test_a_folder_after_a_sign_indexes_nothing(tiny, photos, monkeypatch, tmp_path, query):
    monkeypatch.chdir(photos)
    tiny("search", *query, fails=True)
    assert not (tmp_path / "home" / "library").exists()


def test_a_missing_file_is_an_error_and_nothing_is_indexed(tiny, photos, tmp_path):
    for query in (["IMG_9000.HEIC"], ["missing.jpg", "+", "red"]):
        assert "There is no photo" in tiny("search", *query, photos, fails=True)
    assert not (tmp_path / "home" / "library").exists()


def test_a_video_frame_says_its_time(tiny, photos, monkeypatch):
    found = (
        Photo("a", f"{photos}/clip.mp4", str(photos), time=72.5, score=0.5),
        Photo("b", f"{photos}/scan.tif", str(photos), page=2, score=0.4),
        Photo("c", f"{photos}/red.png", str(photos), score=0.3),
    )
    monkeypatch.setattr(PhotoLibrary, "search", lambda *arguments: Results(found))
    lines = tiny("search", "red", photos).splitlines()
    assert lines == [
        f"0.500  {photos}/clip.mp4  at 1:12",
        f"0.400  {photos}/scan.tif  page 2",
        f"0.300  {photos}/red.png",
    ]
    assert tiny("search", "red", photos, "-f").splitlines()[0] == f"{photos}/clip.mp4"
    listed = json.loads(tiny("search", "red", photos, "--json"))
    assert listed[0] == {"path": f"{photos}/clip.mp4", "score": 0.5, "time": 72.5}
    assert listed[1]["page"] == 2
    assert not {"time", "page"} & set(listed[2])


def test_max_pixels_is_an_option_of_commands_that_open_photos(tiny, monkeypatch):
    monkeypatch.setattr("fishermix_photos.photos.open._chosen_max_pixels", None)
    for command in ("library add", "library update", "search", "caption", "annotate", "explain"):
        assert "--max-pixels" in tiny(*command.split(), "--help")


def test_max_pixels_sets_the_limit(tiny, photos, monkeypatch):
    from fishermix_photos.photos import open as opening

    monkeypatch.setattr(opening, "_chosen_max_pixels", None)
    tiny("search", "red", photos, "--max-pixels", "123")
    assert opening.default_max_pixels() == 123


def test_the_doctor_lists_formats(without_packages):
    from fishermix_photos.cli.doctor import _formats

    listed = list(_formats())
    assert listed[0] == "JPEG"
    assert "HEIC" in listed
    assert "RAW (not installed: pip install 'fishermix-photos[raw]')" in listed


SLOW_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs without it
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from fishermix_photos.__main__ import main
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("name", ["typer", "fishermix_photos.cli.search", "fishermix_photos.library"])
def test_ctrl_c_is_one_line_from_the_first_moments_on(tmp_path, name):
    done = subprocess.run(
        [sys.executable, "-c", SLOW_IMPORT.format(name=name), "search", "a dog", str(tmp_path)],
        env=os.environ | {"FISHERMIX_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130
    assert done.stderr.strip().splitlines() == [
        "fishermix: Interrupted. Completed work is kept. Run the command again to continue."
    ]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_serve_says_what_it_does_before_it_serves(tmp_path):
    paint(tmp_path / "photos" / "red.png", "red")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = (
        "from tiny_model import TinyModel; from fishermix_photos.model.model import ImageTextModel; "
        "ImageTextModel.load = TinyModel.load; from fishermix_photos.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(tmp_path / "photos"), "--port", str(port)],
        env=os.environ
        | {
            "FISHERMIX_HOME": str(tmp_path / "home"),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said = [process.stderr.readline() for _ in range(2)]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert said[0] == "fishermix: Loading the model.\n"
    assert said[1].startswith("fishermix: Looking for new, changed and deleted photos in ")


def test_a_damaged_file_is_named_once(tmp_path):
    from fishermix_photos.photos.open import UnreadableImage, open_photo

    (tmp_path / "a0.avif").write_bytes(b"\0\0\0\x1cftypavif\0\0\0\0avifmif1")
    with pytest.raises(UnreadableImage) as caught:
        open_photo(tmp_path / "a0.avif")
    assert str(caught.value).count("a0.avif") == 1
    assert "a0.avif" not in caught.value.reason  # the index stores the reason next to the path


def test_a_file_of_several_pages_is_one_photo_everywhere(tiny, photos, monkeypatch, remarks):
    shares = TinyImageEncoder._shares
    monkeypatch.setattr(
        TinyImageEncoder, "_shares", lambda self, image, _=None: shares(self, open_photo(image, side=16))
    )
    first, *others = (Image.new("RGB", (40, 30), COLOURS[name]) for name in ("red", "green", "blue"))
    first.save(photos / "scan.tif", save_all=True, append_images=others)
    paint(photos / "a#b.png", "grey", "black")  # a file, not a page
    assert tiny("library", "add", photos).startswith("10 photos: 10 encoded,")
    assert tiny("library", "list") == f"10  {photos}\n"
    assert ": 10 photos with 12 frames and pages" in remarks[-1]
    assert json.loads(tiny("library", "list", "--json"))[0]["photos"] == 10
    assert ": 10 photos, 0 problems" in tiny("doctor")
    tiny("search", "red", photos, "--near", "Lima")
    assert remarks[-1].startswith("None of the 10 photos here")
    with PhotoLibrary() as library:
        assert "10 photos" in repr(library)
        assert library.browse(Query()).total == 10
    for photo in photos.rglob("*.*"):
        photo.unlink()
    assert tiny("library", "update", photos, fails=True).startswith("The library has 10 photos of")
