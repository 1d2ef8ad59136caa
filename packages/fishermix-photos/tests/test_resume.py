"""kill -9 at random moments, and two commands in one work folder. `make kills` does fifty of each."""

import subprocess
import sys

import pytest
from fishermix.saved import hold_folder
from refuses import refuses

pytest.importorskip("torch")
pytest.importorskip("onnx")

import kills

COMMANDS = ("train", "captioner train", "reproduce")
HOLD = (
    "import sys\nfrom fishermix.saved import hold_folder\n"
    "with hold_folder(sys.argv[1], '--work'):\n print('held', flush=True)\n sys.stdin.read()\n"
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    return folder, kills.make_world(folder)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_and_resumed_equals_uninterrupted(command, world, tmp_path):
    assert kills.kill_at_random(command, *world, tmp_path, kills=2, per_round=2) == 2


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_second_command_in_the_same_work_folder_is_refused(command, world, tmp_path):
    folder, network = world
    place = tmp_path / "place"
    kills.prepare(command, folder, place)
    before = sorted(path for path in place.rglob("*") if path.is_file())
    with hold_folder(place / "work", "--work"):
        process = kills.start(kills.commands(folder, network)[command](place), folder)
        assert process.wait() == 1
    assert f"Another fishermix is working in {place / 'work'}" in (folder / "log.txt").read_text()
    after = sorted(path for path in place.rglob("*") if path.is_file() and path.name != "work.lock")
    assert after == before


def test_the_lock_ends_with_its_process(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        refused = refuses("in_use")
        with refused, hold_folder(tmp_path, "--work"):
            pass
        holder.kill()
    with hold_folder(tmp_path, "--work"):
        pass
