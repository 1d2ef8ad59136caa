"""The library follows its folders."""

import os
import shutil
import subprocess
import sys

import pytest
from fishermix.errors import FishermixError
from fishermix.joint.space import JointSpace
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.search.results import FolderAway, LibraryBusy, Query
from PIL import Image
from refuses import refuses
from tiny_model import NAMES, TinyModel, paint, project_to_colours


def counts(changes):
    return changes.encoded, changes.recognized, changes.removed


def test_nothing_is_read_twice(library, photos):
    assert counts(library.update([photos])) == (8, 0, 0)
    library.model.seen.clear()
    version = library.version
    assert not library.update([photos])
    assert library.model.seen == []
    assert library.version == version


def test_a_changed_photo_is_read_again_and_keeps_its_id(library, photos, search):
    library.update([photos])
    library.model.seen.clear()
    before = library.search("red").photos[0]
    paint(photos / "red.png", "green", size=(50, 50))
    assert library.update([photos]).encoded == 1
    assert library.photo(before.id).path == before.path
    assert library.model.seen == [str(photos / "red.png")]
    assert set(search("green", 2)) == {"green.png", "red.png"}
    assert library.verify() == []


def test_moved_copied_and_touched_photos_are_recognized_by_content(library, photos, search):
    library.update([photos])
    library.model.seen.clear()
    (photos / "red.png").rename(photos / "sub" / "rot.png")
    shutil.copyfile(photos / "blue.png", photos / "blau.png")
    os.utime(photos / "green.png", ns=(1, 1))
    assert counts(library.update([photos])) == (0, 3, 1)
    assert library.model.seen == []
    assert search("red", 1) == ["sub/rot.png"]
    assert search("blue", 2, merge_copies=False) == ["blau.png", "blue.png"]
    assert library.summary().contents == 8
    assert library.verify() == []


def test_deleted_photos_are_forgotten(library, photos, search):
    library.update([photos])
    shutil.rmtree(photos / "sub")
    (photos / "red.png").unlink()
    assert library.update([photos]).removed == 2
    assert set(search("red")) == {f"{name}.png" for name in NAMES} - {"red.png"}
    assert library.verify() == []


def test_unreadable_files_are_remembered_and_retried_only_when_they_change(library, photos):
    broken = photos / "broken.jpg"
    broken.write_bytes(b"no photo")
    changes = library.update([photos])
    assert changes.encoded == 8
    assert list(changes.unreadable) == [str(broken)]
    assert "photo" in library.status(photos).unreadable[str(broken)]
    library.model.seen.clear()
    assert not library.update([photos])
    assert library.model.seen == []
    Image.new("RGB", (9, 9), (220, 20, 20)).save(broken)
    assert library.update([photos]).encoded == 1
    assert library.status(photos).unreadable == {}
    assert library.verify() == []


def test_a_file_that_may_not_be_opened_is_tried_again(library, photos, search, monkeypatch):
    def refuse(path):
        if path.endswith("red.png"):
            raise PermissionError(13, "Permission denied")
        return open(path, "rb")

    monkeypatch.setattr("fishermix_photos.photos.open.open_regular", refuse)
    red = str(photos / "red.png")
    assert library.update([photos]).unreadable == {red: "cannot be opened (Permission denied)"}
    assert list(library.status(photos).unreadable) == [red]
    monkeypatch.undo()
    assert library.update([photos]).encoded == 1
    assert search("red", 1) == ["red.png"]


def test_a_folder_that_may_not_be_read_keeps_its_photos(library, photos, search, monkeypatch):
    library.update([photos])
    scandir = os.scandir

    def refuse(folder):
        if os.path.basename(folder) == "sub":
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    changes = library.update([photos])
    assert changes.removed == 0
    assert changes.unreadable == {f"{photos}/sub/": "cannot be read (Permission denied)"}
    assert search("red white blue", 1) == ["sub/flag.png"]


def test_a_disk_that_is_not_mounted_costs_no_photos(library, photos, search):
    library.update([photos])
    photos.rename(photos.with_name("elsewhere"))
    with pytest.raises(FolderAway):
        library.update([photos])
    (status,) = library.folders()
    assert (status.exists, status.photos) == (False, 8)
    assert search("red", 1) == ["red.png"]
    photos.mkdir()
    with pytest.raises(FolderAway):
        library.update([photos])
    assert library.count() == 8


def test_one_folder_that_is_away_does_not_stop_the_others(library, photos, tmp_path, search):
    paint(tmp_path / "other" / "a.png", "red", "green")
    library.update([photos, tmp_path / "other"])
    shutil.rmtree(tmp_path / "other")
    paint(photos / "new.png", "yellow", "green")
    changes = library.update([tmp_path / "other", photos])
    assert changes.encoded == 1
    assert list(changes.problems) == [tmp_path / "other"]
    assert search("yellow green", 1) == ["new.png"]


def test_a_new_folder_that_is_missing_does_not_stop_the_others(library, photos, tmp_path, search):
    missing, file = tmp_path / "missing", paint(tmp_path / "file.png", "red")
    changes = library.update([missing, photos, file])
    assert changes.encoded == 8
    assert list(changes.problems) == [missing, file]
    assert [status.folder for status in library.folders()] == [photos]
    with refuses("wrong_folder"):
        library.update([missing, missing])
    shutil.rmtree(photos)
    with pytest.raises(FishermixError):
        library.update([missing, photos])


def test_links_hidden_files_and_other_files_are_left_alone(library, photos, tmp_path):
    secret = paint(tmp_path / "outside" / "secret.png", "red")
    (photos / "link.png").symlink_to(secret)
    (photos / "linked").symlink_to(secret.parent)
    (photos / "loop").symlink_to(photos)
    paint(photos / ".hidden" / "red.png", "red")
    (photos / "notes.txt").write_text("red")
    changes = library.update([photos])
    assert changes.encoded == 8
    assert changes.remarks == ("Left out: 1 hidden.",)


def test_a_folder_that_became_a_link_is_not_followed(library, photos, tmp_path):
    library.update([photos])
    photos.rename(tmp_path / "moved")
    photos.symlink_to(tmp_path / "moved")
    assert library.update([photos]).recognized == 8  # it is the folder that the link names
    assert library.covering(photos) == tmp_path / "moved"


def test_names_that_are_no_text(library, photos, search):
    name = os.fsdecode(b"caf\xe9.png")
    paint(photos / "plain.png", "yellow", "black")
    os.rename(photos / "plain.png", photos / name)
    library.update([photos])
    assert search("yellow black", 1) == [name]
    assert "caf?" in library.search("yellow black")._repr_html_()


def test_another_model_encodes_all_folders_again(library, photos, tmp_path):
    paint(tmp_path / "other" / "a.png", "red", "green")
    library.update([photos, tmp_path / "other"])

    class Other(TinyModel):
        key, csls_dimension = "other", 3

        joint_space = JointSpace(project_to_colours(3), power=0)

    with PhotoLibrary(library.place, Other()) as other:
        with refuses("other_model"):
            other.search("red")
        changes = other.update([photos])
        assert changes.encoded == 9
        assert any("another model" in remark for remark in changes.remarks)
        assert (other.summary().dimension, other.summary().photos) == (3, 9)
        assert other.verify() == []


def test_folders_without_photos_and_mistakes_are_reported(library, tmp_path, search):
    (tmp_path / "empty").mkdir()
    assert library.update([tmp_path / "empty"]).remarks == (f"There are no photos in {tmp_path / 'empty'}.",)
    assert library.folders() == search("red") == []
    with refuses("wrong_folder"):
        library.update([tmp_path / "nowhere"])
    with refuses("wrong_folder"):
        library.update([paint(tmp_path / "file.png", "red")])


def test_two_updates_of_a_folder_at_once(library, photos, tmp_path, search):
    other = LocalIndex(tmp_path / "library")
    with other.updating([str(photos)]), pytest.raises(LibraryBusy):
        library.update([photos])
    library.update([photos])
    with other.updating([str(photos)]):  # readers do not wait, and nothing has changed
        assert not library.update([photos])
        assert search("red", 1) == ["red.png"]
    other.close()


def test_a_killed_update_leaves_no_lock(library, photos, tmp_path):
    library.update([photos])
    script = (
        "import sys, os; from fishermix_photos.index.writer import LocalIndex\n"
        "with LocalIndex(sys.argv[1]).updating([sys.argv[2]]): os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "library", photos], check=False)
    assert done.returncode == -9
    paint(photos / "new.png", "yellow", "green")
    assert library.update([photos]).encoded == 1


def test_progress_is_reported_and_can_stop_an_update(library, photos):
    heard = []
    library.update([photos], on_progress=lambda *told: heard.append(told))
    assert heard[-1][1:] == (8, 8)

    class Stopped(BaseException):
        pass

    def stop(*told):
        raise Stopped

    paint(photos / "new.png", "yellow", "green")
    with pytest.raises(Stopped):
        library.update([photos], on_progress=stop)
    assert library.update([photos]).encoded <= 1
    assert library.count() == 9


def test_the_default_place_is_outside_the_photos_and_each_model_has_its_own(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))
    with PhotoLibrary(model=TinyModel()) as library:
        library.update([photos])
        assert library.place == str(tmp_path / "home" / "library-tiny")
    assert (tmp_path / "home" / "library-tiny" / "library.sqlite").is_file()
    with PhotoLibrary() as shipped:  # the model is not loaded for this
        assert shipped.place == str(tmp_path / "home" / "library")
        assert shipped.folders() == []
        assert shipped.browse(Query()).photos == ()
    with PhotoLibrary(model=ImageTextModel.load()) as shipped:
        assert shipped.place == str(tmp_path / "home" / "library")
