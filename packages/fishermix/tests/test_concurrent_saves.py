"""Several processes and threads save and load one folder at once, and some of them are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from fishermix.errors import FishermixError
from fishermix.saved import load_folder
from refuses import refuses
from things import THING, saved

SAVES = 25
WRITER = """
import sys
from things import saved
for number in range(int(sys.argv[2])):
    saved(sys.argv[1], float(number))
"""
READER = """
import sys
from pathlib import Path
from fishermix.saved import load_folder
from things import THING
loads = 0
while not Path(sys.argv[1], "stop").exists():
    saved_folder = load_folder(sys.argv[1], THING)
    config, tensors = saved_folder.config, saved_folder.tensors
    assert (tensors["a"] == config.value).all()
    loads += 1
print(loads)
"""


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check_whole(folder):
    saved_folder = load_folder(folder, THING)
    config, tensors = saved_folder.config, saved_folder.tensors
    assert (tensors["a"] == config.value).all()
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        json.loads((folder / "config.json").read_text())["tensors"],
    ]


@pytest.mark.slow
def test_processes_that_save_one_folder_at_once_wait_for_each_other(tmp_path):
    folder = tmp_path / "x"
    for writer in [start(WRITER, folder, SAVES) for _ in range(3)]:
        _, errors = writer.communicate()
        assert writer.returncode == 0, errors
    check_whole(folder)


@pytest.mark.slow
def test_threads_that_save_one_folder_at_once_wait_for_each_other(tmp_path):
    folder = tmp_path / "x"
    before = os.umask(0o027)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda value: saved(folder, float(value)), range(4 * SAVES)))
        assert os.umask(0o027) == 0o027  # no thread has changed it
    finally:
        os.umask(before)
    check_whole(folder)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o640}


@pytest.mark.slow
def test_a_load_during_saves_gives_the_old_state_or_the_new_one(tmp_path):
    folder = tmp_path / "x"
    saved(folder)
    readers = [start(READER, folder) for _ in range(2)]
    writer = start(WRITER, folder, 4 * SAVES)
    _, errors = writer.communicate()
    assert writer.returncode == 0, errors
    (folder / "stop").touch()
    for reader in readers:
        loads, errors = reader.communicate()
        assert reader.returncode == 0, errors
        assert int(loads) > 0


def test_a_save_removes_what_killed_saves_left_and_nothing_else(tmp_path):
    folder = tmp_path / "x"
    saved(folder)
    for name, content in ((".config.json.abcdef12.tmp", b""), (".config.json.0123ef42.tmp", b'{\n "form')):
        (folder / name).write_bytes(content)
    kept = {".config.json.notes123.tmp": b"mine", ".config.json.backup.tmp": b"", ".saving-mine": b""}
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    saved(folder, 2.0)
    left = {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith(".")}
    assert left == kept


@pytest.mark.slow
def test_a_save_killed_within_its_tensors_leaves_nothing_after_the_next(tmp_path):
    folder = tmp_path / "x"
    saved(folder)
    code = (
        "import sys, numpy as np\nfrom fishermix.saved import save_folder\n"
        "from things import THING, Thing\n"
        "save_folder(sys.argv[1], THING, Thing(1), {'a': np.ones(60_000_000)})\n"
    )
    seen = False
    while not seen:
        writer = start(code, folder)
        while writer.poll() is None and not (seen := any(folder.glob(".saving-*/.tmp*"))):
            time.sleep(0.001)
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
    assert load_folder(folder, THING).config.value == 1.0
    saved(folder, 2.0)
    check_whole(folder)


@pytest.mark.parametrize("name", ["nul\0byte", "n" * 300, "n" * 300 + "/inside", "/".join(["deep"] * 2000)])
def test_an_impossible_name_is_a_mistake_of_the_user(tmp_path, name):
    with pytest.raises(FishermixError):
        saved(tmp_path / name)
    with refuses("not_found"):
        load_folder(tmp_path / name, THING)


def test_tensors_of_a_save_in_a_hidden_folder_are_not_readable_by_others(tmp_path):
    before = os.umask(0o077)
    try:
        saved(tmp_path / "x", np.pi)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "x").iterdir()} == {0o600}
