"""What the commands say about formats, files that are skipped, and small things that were wrong."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys

import pytest
from PIL import Image
from starlette.testclient import TestClient
from tiny_model import COLOURS, TinyImageEncoder, TinyModel, paint

from fishermix.cli import common, index, search
from fishermix.retrieval.index import PhotoIndex
from fishermix.server.app import create_app
from fishermix.vision import formats
from fishermix.vision.images import open_photo


@pytest.fixture
def remarks(monkeypatch):
    found = []
    for module in (common, index, search):
        monkeypatch.setattr(module, "tell", found.append)
    return found


@pytest.fixture
def without_packages(monkeypatch):
    monkeypatch.setattr(formats, "_has_module", lambda module: module == "pillow_heif")
    monkeypatch.setattr("fishermix.extras.is_from_index", lambda: True)


RAW_SKIPPED = "3 .cr3 files were skipped: pip install 'fishermix[raw]'."


def test_skipped_files_are_reported_by_search_add_and_info(tiny, photos, remarks, without_packages):
    for name in ("1.cr3", "2.CR3", "sub/3.cr3"):
        (photos / name).write_bytes(b"x")
    tiny("index", "add", photos)
    assert RAW_SKIPPED in remarks
    remarks.clear()
    tiny("search", "red", photos)
    assert RAW_SKIPPED in remarks
    assert f"  {RAW_SKIPPED}" in tiny("index", "info", photos).splitlines()
    assert json.loads(tiny("index", "info", photos, "--json"))["skipped"] == {".cr3": 3}


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may read everything")
def test_info_lists_folders_that_cannot_be_read(tiny, photos):
    tiny("index", "add", photos)
    (photos / "sub").chmod(0)
    try:
        assert "sub/: cannot be read" in tiny("index", "info", photos)
    finally:
        (photos / "sub").chmod(0o755)


def test_info_lists_everything_that_an_update_reported(tiny, photos, monkeypatch):
    """The folder is unreadable for the listing only, so that this also holds for the superuser."""
    scandir = os.scandir

    def refuse(folder):
        if str(folder).endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    (photos / "broken.jpg").write_bytes(b"x")
    tiny("index", "add", photos)
    listed = tiny("index", "info", photos)
    assert "unreadable  2" in listed
    assert "  sub/: cannot be read (Permission denied)" in listed
    assert "  broken.jpg: " in listed
    assert listed.count("broken.jpg") == 1
    assert set(json.loads(tiny("index", "info", photos, "--json"))["unreadable"]) == {"sub/", "broken.jpg"}


def test_the_info_of_an_index_does_not_count_dimensions_differently(tiny, photos):
    tiny("index", "add", photos)
    assert "dimensions" not in tiny("index", "info", photos)


def test_hints_quote_paths(tiny, photos, remarks):
    folder = photos.rename(photos.parent / "my photos")
    message = tiny("index", "info", folder, fails=True)
    assert shlex.split(message.split("`")[1]) == ["fishermix", "index", "add", str(folder)]
    (folder / "broken.jpg").write_bytes(b"x")
    tiny("search", "red", folder)
    command = next(remark for remark in remarks if "unreadable" in remark).split("`")[1]
    assert shlex.split(command) == ["fishermix", "index", "info", str(folder)]
    for path in list(folder.rglob("*.*")):
        path.unlink()
    message = tiny("search", "red", folder, fails=True)
    assert shlex.split(message.split("`")[1]) == ["fishermix", "index", "remove", str(folder)]


@pytest.mark.parametrize("query", [["-", "sub"], ["+", "sub"], ["red", "-", "sub"]])
def test_a_folder_after_a_sign_indexes_nothing(tiny, photos, monkeypatch, tmp_path, query):
    monkeypatch.chdir(photos)
    message = tiny("search", *query, fails=True)
    assert "sub is a folder" in message
    assert not (tmp_path / "home").exists()


def test_a_missing_file_is_an_error_and_nothing_is_indexed(tiny, photos, tmp_path):
    for query in (["IMG_9000.HEIC"], ["missing.jpg", "+", "red"]):
        assert "There is no photo" in tiny("search", *query, photos, fails=True)
    assert not (tmp_path / "home").exists()


def test_a_video_hit_says_its_time(tiny, photos, monkeypatch):
    from fishermix.retrieval.store import Hit

    hits = [Hit("a", "clip.mp4#t=72.5", 0.5), Hit("b", "scan.tif#page=2", 0.4), Hit("c", "red.png", 0.3)]
    monkeypatch.setattr("fishermix.retrieval.index.PhotoIndex.search", lambda *arguments: hits)
    lines = tiny("search", "red", photos).splitlines()
    assert lines == [
        f"0.500  {photos}/clip.mp4  at 1:12",
        f"0.400  {photos}/scan.tif  page 2",
        f"0.300  {photos}/red.png",
    ]
    assert tiny("search", "red", photos, "-f").splitlines()[0] == f"{photos}/clip.mp4"
    found = json.loads(tiny("search", "red", photos, "--json"))
    assert found[0] == {"path": f"{photos}/clip.mp4", "score": 0.5, "time": 72.5}
    assert found[1]["page"] == 2
    assert not {"time", "page"} & set(found[2])


def test_max_pixels_is_an_option_of_every_command_that_opens_photos(tiny, monkeypatch):
    monkeypatch.setattr("fishermix.vision.pixel_limit._chosen_max_pixels", None)
    for command in (["search"], ["index", "add"], ["index", "update"], ["serve"], ["annotate"], ["caption"]):
        assert "--max-pixels" in tiny(*command, "--help")
    for command in (["explain"], ["demo"], ["features"]):
        assert "--max-pixels" in tiny(*command, "--help")


def test_max_pixels_sets_the_limit(tiny, photos, monkeypatch):
    from fishermix.vision import pixel_limit

    monkeypatch.setattr(pixel_limit, "_chosen_max_pixels", None)
    tiny("search", "red", photos, "--max-pixels", "123")
    assert pixel_limit.default_max_pixels() == 123


def test_the_doctor_lists_formats_and_says_what_an_extra_is_for(tiny, photos, without_packages):
    from fishermix.cli.doctor import PURPOSE, _extras, _formats

    listed = list(_formats())
    assert listed[0] == "JPEG"
    assert "HEIC" in listed
    assert "RAW (not installed: pip install 'fishermix[raw]')" in listed
    caption = next(text for text in _extras() if text.startswith("caption"))
    assert "torch" in caption or PURPOSE["caption"] in caption


def test_an_extra_that_is_not_installed_is_not_called_what_works_without_it(monkeypatch):
    from importlib.metadata import PackageNotFoundError

    from fishermix.cli import doctor

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert "caption (not installed; needed only to train a captioner)" in list(doctor._extras())


SLOW_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs without it
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from fishermix.__main__ import main
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("name", ["typer", "fishermix.cli.search", "fishermix.retrieval.query"])
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


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_serve_says_what_it_does_before_it_serves(tmp_path):
    paint(tmp_path / "photos" / "red.png", "red")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = (
        "from tiny_model import TinyModel; from fishermix.model.model import ImageTextModel; "
        "ImageTextModel.load = TinyModel.load; from fishermix.cli import main; main()"
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
        said = [process.stderr.readline() for _ in range(3)]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert said[0] == "fishermix: Loading the model.\n"
    assert said[1] == "fishermix: Loading the image encoder and the captioner.\n"
    assert said[2].startswith("fishermix: Looking for new, changed and deleted photos in ")


def test_a_damaged_file_is_named_once(tmp_path):
    from fishermix.vision.images import UnreadableImage, open_photo

    (tmp_path / "a0.avif").write_bytes(b"\0\0\0\x1cftypavif\0\0\0\0avifmif1")
    with pytest.raises(UnreadableImage) as caught:
        open_photo(tmp_path / "a0.avif")
    assert str(caught.value).count("a0.avif") == 1
    assert "a0.avif" not in caught.value.reason  # the index stores the reason next to the path


def test_a_file_of_several_pages_is_one_photo_everywhere(tiny, photos, monkeypatch, remarks):
    shares = TinyImageEncoder._shares
    monkeypatch.setattr(
        TinyImageEncoder, "_shares", lambda self, image: shares(self, open_photo(image, side=16))
    )
    first, *others = (Image.new("RGB", (40, 30), COLOURS[name]) for name in ("red", "green", "blue"))
    first.save(photos / "scan.tif", save_all=True, append_images=others)
    paint(photos / "a#b.png", "grey", "black")  # a file, not a part
    assert tiny("index", "add", photos).startswith("10 photos in the index: 10 encoded,")
    info = tiny("index", "info", photos).splitlines()
    assert info[1:3] == [
        "photos      10 (10 distinct)",
        "pictures    12 (with all video frames and TIFF pages)",
    ]
    found = json.loads(tiny("index", "info", photos, "--json"))
    assert (found["photos"], found["pictures"]) == (10, 12)
    assert tiny("index", "list") == f"10  {photos}\n"
    assert json.loads(tiny("index", "list", "--json"))[0]["photos"] == 10
    assert ": 10 photos." in tiny("index", "verify", photos)
    assert "10 photos, no problems" in tiny("doctor")
    tiny("search", "red", photos, "--after", "2199")
    assert remarks[-1].startswith("None of the 10 photos")
    with PhotoIndex(photos, TinyModel()) as opened:
        assert "10 photos" in repr(opened)
        client = TestClient(create_app(opened, ["a red picture"]), base_url="http://127.0.0.1")
        assert client.get("/api/status").json()["photos"] == client.get("/api/health").json()["photos"] == 10
        assert client.get("/api/browse").json()["total"] == 10
    for photo in photos.rglob("*.*"):
        photo.unlink()
    assert tiny("search", "red", photos, fails=True).startswith("The index has 10 photos, but")
