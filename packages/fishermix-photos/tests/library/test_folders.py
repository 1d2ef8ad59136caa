"""One library for all folders: renamed, moved, copied and nested ones cost no encoding."""

import shutil

import numpy as np
import pytest
from fishermix_photos.index.scan import Stamp
from fishermix_photos.index.values import Entry
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.search.results import NotInLibrary, Query
from fishermix_photos.search.terms import parse_query
from tiny_model import NAMES, paint


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for name in NAMES:
        paint(folder / f"{name}.png", name)
    paint(folder / "sub" / "flag.png", "red", "white", "blue")
    paint(folder / "sub" / "deep" / "pair.png", "red", "black")
    paint(folder / "subtle.png", "green", "red")  # next to sub in the alphabet, but not in it
    return folder


@pytest.fixture
def update(library):
    def update(*folders, **options):
        changes = library.update(folders, **options)
        assert library.verify() == []
        return changes.encoded, changes.recognized, changes.removed

    return update


def names(library, line, *folders, n=100, **options):
    found = library.search(Query(parse_query(line), n=n, folders=folders, **options)).photos
    return [photo.path.rpartition("/")[2] for photo in found]


def test_renamed_copied_and_inner_folders_are_not_encoded_again(library, update, photos, tmp_path):
    assert update(photos) == (10, 0, 0)
    before = {photo.relative: library.photo(photo.id) for photo in library.browse(Query(n=100)).photos}
    points = {name: library._point(photo.id) for name, photo in before.items()}
    moved = photos.rename(tmp_path / "moved")
    assert update(moved) == (0, 10, 0)
    for photo in library.browse(Query(n=100, folders=(moved,))).photos:
        np.testing.assert_array_equal(library._point(photo.id), points[photo.relative])
    assert library.remove(photos) == 10  # the points stay
    assert update(moved) == (0, 0, 0)
    shutil.copytree(moved / "sub", tmp_path / "copy")
    assert update(tmp_path / "copy") == (0, 2, 0)
    assert update(moved / "sub") == (0, 0, 0)  # the library has it
    paint(moved / "sub" / "new.png", "yellow", "green")
    assert update(moved / "sub") == (1, 0, 0)
    assert update(moved) == (0, 0, 0)
    assert [status.folder for status in library.folders()] == [tmp_path / "copy", moved]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_photos_that_move_to_another_folder_are_not_encoded_again(library, update, photos, tmp_path, order):
    paint(tmp_path / "other" / "a.png", "yellow", "black")
    folders = photos, tmp_path / "other"
    assert update(*folders) == (11, 0, 0)
    shutil.move(photos / "sub", tmp_path / "other" / "sub")
    changes = [update(folders[position]) for position in order]  # one command after the other
    assert sorted(changes) == [(0, 0, 2), (0, 2, 0)]


def test_a_folder_inside_is_searched_by_its_path(library, update, photos):
    update(photos)
    assert set(names(library, "red", photos / "sub")) == {"flag.png", "pair.png"}
    assert names(library, "red", photos / "sub", n=1) == ["pair.png"]
    assert names(library, "red", photos / "sub" / "deep") == ["pair.png"]
    assert names(library, "red", photos / "nowhere") == []
    assert library.count([photos / "sub"]) == 2
    assert library.count([photos / "sub", photos / "sub" / "deep"]) == 2
    assert library.status(photos / "sub").photos == 2
    assert library.covering(photos / "sub" / "deep") == photos
    assert library.covering(photos.parent) is None
    with pytest.raises(NotInLibrary) as caught:
        library.remove(photos / "sub")
    assert caught.value.values["covering"] == photos
    with pytest.raises(NotInLibrary):
        library.status(photos.parent)


def test_an_update_of_a_folder_inside_leaves_the_rest_alone(library, update, photos):
    update(photos)
    (photos / "sub" / "flag.png").unlink()
    (photos / "red.png").unlink()
    assert update(photos / "sub") == (0, 0, 1)
    assert library.count() == 9  # red.png is not in the folder
    assert update(photos) == (0, 0, 1)


def test_a_folder_around_others_takes_them_over(library, update, photos):
    update(photos / "sub" / "deep", photos / "sub")
    assert [status.folder for status in library.folders()] == [photos / "sub"]
    assert update(photos) == (8, 0, 0)
    assert [status.folder for status in library.folders()] == [photos]
    assert {photo.folder for photo in library.browse(Query(n=100)).photos} == {str(photos)}


def test_a_folder_that_is_left_out_can_be_added_by_its_name(library, update, photos):
    secret = photos / ".private"
    paint(secret / "secret.png", "red", "green", "blue")
    assert update(photos) == (10, 0, 0)
    assert library.covering(secret) is None
    assert update(photos, secret) == (1, 0, 0)
    assert update(photos) == update(secret) == (0, 0, 0)  # neither forgets the photos of the other
    assert [status.photos for status in library.folders()] == [10, 1] or library.count() == 11
    (photos / ".fishermixignore").write_text("/sub/deep\n")
    assert update(photos) == (0, 0, 1)
    assert update(photos / "sub") == (0, 0, 0)
    assert library.covering(photos / "sub" / "deep") is None
    assert update(photos / "sub" / "deep") == (0, 1, 0)
    assert update(photos) == (0, 0, 0)


def test_two_libraries_know_nothing_of_each_other(library, update, photos, tmp_path):
    from fishermix_photos.library import PhotoLibrary

    update(photos)
    with PhotoLibrary(tmp_path / "second", library.model) as second:
        assert second.update([photos]).encoded == 10


def test_the_root_of_the_disk_may_be_a_folder(library, tmp_path):
    store = LocalIndex(library.place)
    store.adopt(library.model.key, library.model.csls_dimension)
    store.add_folder("/")
    points = np.eye(len(NAMES), dtype=np.float32)
    for number, path in enumerate(("/red.jpg", "/a/green.png", "/a/b/blue.png")):
        store.write("/", [Entry(path, Stamp(1, 2), bytes([number]) * 32, points[number])])
    store.close()
    assert names(library, "green", "/") == ["green.png", "red.jpg", "blue.png"]
    assert names(library, "green", "/a") == ["green.png", "blue.png"]
    listed = library.browse(Query(folders=("/",), sort="name")).photos
    assert [(photo.relative, photo.name) for photo in listed] == [
        ("a/b/blue.png", "a/b/blue.png"),
        ("a/green.png", "a/green.png"),
        ("red.jpg", "red.jpg"),
    ]
    assert [(found.name, found.photos) for found in library.facets().folders] == [("a", 2), ("a/b", 1)]
    assert str(library.covering(tmp_path)) == "/"
    assert library.count(["/a"]) == library.status("/a").photos == 2
    assert library.remove("/") == 3
    assert library.verify() == []
