"""Saved folders: whole or not at all, checked on load."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from fishermix.saved import (
    FolderKind,
    load_folder,
    require_tensor,
    save_folder,
    write_atomically,
)
from fishermix.saved.tensors import check_tensors
from refuses import refuses
from things import THING, Thing, saved


def test_load_returns_what_was_saved(tmp_path):
    saved(tmp_path / "x", 2.5)
    saved_folder = load_folder(tmp_path / "x", THING)
    config, tensors = saved_folder.config, saved_folder.tensors
    assert config.value == 2.5
    np.testing.assert_array_equal(tensors["a"], np.full((2, 3), 2.5, np.float32))


def test_a_second_save_replaces_the_first_and_leaves_one_tensor_file(tmp_path):
    saved(tmp_path / "x", 1.0)
    saved(tmp_path / "x", 2.0)
    assert load_folder(tmp_path / "x", THING).tensors["a"][0, 0] == 2.0
    assert len(list((tmp_path / "x").glob("*.safetensors"))) == 1


def test_saved_files_are_as_readable_as_any_other(tmp_path):
    saved(tmp_path / "x")
    (tmp_path / "plain").write_text("")
    for path in (tmp_path / "x").iterdir():
        assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_of_something_else_is_never_overwritten(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "diary.txt").write_text("mine")
    with refuses("wrong_folder"):
        saved(tmp_path / "x")
    saved(tmp_path / "y", kind=FolderKind("other thing", 1, Thing))
    with refuses("wrong_folder"):
        saved(tmp_path / "y")
    assert (tmp_path / "x" / "diary.txt").read_text() == "mine"
    (tmp_path / "file").write_text("")
    with refuses("wrong_folder"):
        saved(tmp_path / "file")


def test_a_first_save_that_was_killed_is_no_hindrance(tmp_path):
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / ".config.json.0123abcd.tmp").write_bytes(b"half")
    (folder / ".saving-0123456789abcdef").mkdir()
    (folder / ".saving-0123456789abcdef" / "tensors").write_bytes(b"half")
    (folder / "tensors-0123456789ab.safetensors").write_bytes(b"whole")
    with refuses("not_found"):
        load_folder(folder, THING)
    saved(folder, 2.0)
    assert load_folder(folder, THING).config.value == 2.0
    assert len(list(folder.iterdir())) == 2


def test_a_save_removes_only_what_has_a_name_that_saves_give(tmp_path):
    folder = tmp_path / "x"
    saved(folder, 1.0)
    (folder / "tensors-mine.safetensors").write_text("mine")
    for name in ("photos-0123456789ab", "ckpt-aaaaaaaaaaaa"):
        (folder / name).mkdir()
        (folder / name / "index.db").write_text("mine")
    (folder / "link-0123456789ab").symlink_to(folder / "photos-0123456789ab")
    saved(folder, 2.0)
    assert load_folder(folder, THING).config.value == 2.0
    assert (folder / "tensors-mine.safetensors").read_text() == "mine"
    for name in ("photos-0123456789ab", "ckpt-aaaaaaaaaaaa", "link-0123456789ab"):
        assert (folder / name / "index.db").read_text() == "mine"
    assert len(list(folder.glob("tensors-*"))) == 2


def test_parts_come_and_go_with_the_save_that_names_them(tmp_path):
    folder = tmp_path / "x"

    def save(value, parts):
        save_folder(folder, THING, Thing(), {"a": np.array([value])}, parts)
        named = json.loads((folder / "config.json").read_text())["parts"].get("part")
        return named and folder / named

    first = save(1.0, {"part": lambda place: saved(place, 7.0)})
    assert load_folder(first, THING).config.value == 7.0
    second = save(2.0, {"part": lambda place: saved(place, 8.0)})
    assert load_folder(second, THING).config.value == 8.0
    assert not first.exists()
    (second / "diary.txt").write_text("mine")
    assert save(3.0, {}) is None
    assert [path.name for path in second.iterdir()] == ["diary.txt"]


def test_a_save_that_fails_leaves_the_old_state_and_nothing_else(tmp_path):
    def fail(place):
        saved(place)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        save_folder(tmp_path / "new", THING, Thing(), {"a": np.ones(2)}, {"part": fail})
    assert list((tmp_path / "new").iterdir()) == []
    saved(tmp_path / "x", 1.0)
    before = sorted(path.name for path in (tmp_path / "x").iterdir())
    with pytest.raises(OSError, match="disk full"):
        save_folder(tmp_path / "x", THING, Thing(), {"a": np.ones(2)}, {"part": fail})
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == before
    assert load_folder(tmp_path / "x", THING).config.value == 1.0


def change(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda f: (f / "config.json").unlink(), "not_found"),
        (lambda f: (f / "config.json").write_text("{"), "damaged"),
        (lambda f: (f / "config.json").write_text("[]"), "not_found"),
        (lambda f: change(f / "config.json", kind="cake"), "not_found"),
        (lambda f: change(f / "config.json", version=9), "newer_version"),
        (
            lambda f: change(f / "config.json", tensors="../../secret"),
            "damaged",
        ),
        (lambda f: next(f.glob("*.safetensors")).unlink(), "damaged"),
        (lambda f: next(f.glob("*.safetensors")).write_bytes(b"x" * 99), "damaged"),
    ],
)
def test_damage_is_named(tmp_path, damage, code):
    saved(tmp_path / "x")
    damage(tmp_path / "x")
    with refuses(code):
        load_folder(tmp_path / "x", THING)


def test_a_failed_read_is_not_called_damage(tmp_path):
    """Whatever keeps it from opening a file, safetensors says that there is none."""
    resource = pytest.importorskip("resource", reason="Windows has no descriptor limit to lower")
    saved(tmp_path / "x")
    [tensors] = (tmp_path / "x").glob("*.safetensors")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull) as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                check_tensors(tensors, fits_in_memory=True)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_required_tensors_are_checked():
    tensors = {"a": np.ones((2, 3)), "b": np.array([np.nan])}
    assert require_tensor(tensors, "a", (2, None), "here").shape == (2, 3)
    for name, shape in (("c", (1,)), ("a", (3, None)), ("b", (1,))):
        with refuses("damaged"):
            require_tensor(tensors, name, shape, "here")


def test_write_atomically_keeps_the_old_file_when_writing_fails(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "not bytes")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_killed_while_saving_over_and_over_the_folder_is_always_whole(tmp_path):
    folder = tmp_path / "x"
    saved(folder)
    code = (
        "import sys, numpy as np\nfrom fishermix.saved import save_folder\n"
        "from things import THING, Thing\nn = 0\n"
        "while True:\n n += 1\n a = np.full((400, 300), n)\n"
        " save_folder(sys.argv[1], THING, Thing(n), {'a': a})\n"
    )
    for moment in np.random.default_rng(0).uniform(0.3, 0.8, 6):
        writer = subprocess.Popen([sys.executable, "-c", code, str(folder)], cwd=Path(__file__).parent)
        time.sleep(moment)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        saved_folder = load_folder(folder, THING)
        config, tensors = saved_folder.config, saved_folder.tensors
        assert (tensors["a"] == config.value).all()


def test_a_save_killed_before_it_removed_the_old_tensors_leaves_them_until_the_next(tmp_path):
    folder = tmp_path / "x"
    saved(folder, 1.0)
    code = (
        "import os, pathlib, sys\nfrom things import saved\nremove = pathlib.Path.unlink\n"
        "def die(path, missing_ok=False):\n"
        "    os._exit(9) if path.name.startswith('tensors-') else remove(path, missing_ok)\n"
        "pathlib.Path.unlink = die\nsaved(sys.argv[1], 2.0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=Path(__file__).parent, check=False)
    assert done.returncode == 9
    assert load_folder(folder, THING).config.value == 2.0
    assert len(list(folder.glob("tensors-*"))) == 2
    saved(folder, 3.0)
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".safetensors"]


@pytest.mark.skipif(os.name != "posix", reason="Windows cannot sync a folder")
def test_a_folder_is_synced_after_each_rename(tmp_path, monkeypatch):
    calls, rename, sync = [], os.replace, os.fsync
    monkeypatch.setattr(os, "replace", lambda old, new: (rename(old, new), calls.append(Path(new).name)))
    monkeypatch.setattr(
        os, "fsync", lambda handle: (sync(handle), calls.append(stat.S_ISDIR(os.fstat(handle).st_mode)))
    )
    saved(tmp_path / "x")
    renamed = [place for place, call in enumerate(calls) if isinstance(call, str)]
    assert {calls[place].partition("-")[0] for place in renamed} == {"config.json", "tensors"}
    assert all(True in calls[place + 1 : place + 3] for place in renamed)
