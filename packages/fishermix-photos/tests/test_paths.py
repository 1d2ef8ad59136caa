"""One data folder for everything that fishermix keeps."""

from fishermix_photos.disk import data_folder
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.model.network import added_networks
from refuses import refuses


def test_the_library_and_networks_are_in_one_folder_and_a_tilde_is_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FISHERMIX_HOME", "~/x")
    assert data_folder() == tmp_path / "x"
    with PhotoLibrary() as library:
        assert library.place == str(tmp_path / "x" / "library")
    assert (added_networks() / "resnet50").is_relative_to(tmp_path / "x")


def test_without_the_variable_it_is_the_data_folder_of_the_platform(tmp_path, monkeypatch):
    monkeypatch.delenv("FISHERMIX_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert data_folder() == tmp_path / "data" / "fishermix"


def test_an_unknown_user_is_named(monkeypatch):
    monkeypatch.setenv("FISHERMIX_HOME", "~nobody-of-this-name/x")
    with refuses("not_found"):
        data_folder()
