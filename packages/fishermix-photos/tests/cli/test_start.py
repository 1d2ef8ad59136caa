"""What the commands import: a search of an indexed folder must not wait for what it does not use."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import fishermix
import fishermix_photos
import numpy as np
import pytest
from fishermix import __version__
from fishermix_photos.cli import load_commands
from fishermix_photos.cli.demo import copy_packaged_photos
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.saved import SHIPPED

HEAVY = {"scipy", "sklearn", "numba", "pandas", "torch", "onnxruntime", "faiss", "PIL", "matplotlib"}
RUN = """
import sys
from fishermix_photos.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*sorted(sys.modules), file=sys.stderr)
"""
shipped = pytest.mark.skipif(not (SHIPPED / "config.json").is_file(), reason="no model in the package yet")


def run(home, *arguments):
    """Standard output of a command in a process of its own, and the modules it imported."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, arguments)],
        env=os.environ | {"FISHERMIX_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, set(done.stderr.splitlines()[-1].split())


IDLE = """
import sys, time
sys.argv = ["fishermix", "--version"]
assert "numpy" not in sys.modules
from fishermix_photos.__main__ import main
try:
    main()
except SystemExit:
    pass
import numpy as np
square = np.ones((1024, 1024), np.float32)
square @ square
begin = time.process_time()
time.sleep(0.3)
print(time.process_time() - begin)
"""


@pytest.mark.slow
def test_threads_of_a_command_do_not_spin_after_a_matrix_product():
    """By default OpenBLAS burns 0.1 s of CPU time in each idle thread."""
    given = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"}
    printed = subprocess.check_output([sys.executable, "-c", IDLE], env=given, text=True)
    assert float(printed.split()[-1]) < 0.03


def test_the_version_names_the_commit_of_a_checkout(tmp_path):
    checkout = tmp_path / "checkout"
    package = Path(fishermix_photos.__file__).parent
    target = checkout / "packages" / "fishermix-photos" / "src" / "fishermix_photos"
    target.mkdir(parents=True)
    shutil.copy(package / "__init__.py", target)
    code = "from fishermix_photos import find_commit; print(find_commit())"

    def run_there(*command):
        environment = os.environ | {"PYTHONPATH": str(target.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.check_output(command, env=environment, cwd=checkout, text=True).strip()

    def find_commit():
        return run_there(sys.executable, "-c", code)

    assert find_commit() == "None"
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
    run_there(*git, "init", "-q")
    run_there(*git, "add", ".")
    run_there(*git, "commit", "-qm", "one")
    commit = run_there("git", "rev-parse", "--short", "HEAD")
    run_there("git", "tag", "v9.9")  # the commit, not the tag
    assert find_commit() == commit
    (target / "__init__.py").open("a").write("\n")
    assert find_commit() == f"{commit}-dirty"


@pytest.mark.slow
@shipped
def test_a_second_search_imports_nothing_heavy_but_what_runs_the_transformer(tmp_path):
    photos = copy_packaged_photos(tmp_path / "photos")
    _, imported = run(tmp_path, "--quiet", "search", "a cat", photos)
    assert "PIL" in imported  # it did index
    listed, imported = run(tmp_path, "--quiet", "search", "a cat", "-", "a dog", photos, "--json", "-n", 2)
    assert "chelsea.png" in json.loads(listed)[0]["path"]
    assert "numpy" in imported
    # The model's sentence transformer runs in onnxruntime.
    # numpy 1 imports numpy.ma itself.
    of_numpy = {"numpy.ma"} if np.lib.NumpyVersion(np.__version__) < "2.0.0" else set()
    assert imported & (HEAVY | {"numpy.ma", "statistics"}) - of_numpy == {"onnxruntime"}
    of_commands = {name for name in imported if name.startswith("fishermix_photos.cli.")}
    assert of_commands == {
        f"fishermix_photos.cli.{name}" for name in ("common", "filters", "options", "search", "wording")
    }
    assert "importlib.metadata" not in imported or "fishermix_lab" not in imported  # no look for plug-ins
    _, imported = run(tmp_path, "--quiet", "library", "list", photos)
    assert not imported & HEAVY


def test_help_and_version_import_no_numbers(tmp_path):
    listed, imported = run(tmp_path, "--version")
    assert listed.startswith(f"fishermix {__version__}")
    assert not imported & (HEAVY | {"numpy"})
    listed, imported = run(tmp_path, "search", "--help")
    assert "--min-score" in listed
    assert not imported & (HEAVY | {"numpy"})


@pytest.mark.slow
def test_a_module_that_is_no_command_and_a_misspelled_command_load_all(tmp_path):
    for name in ("common", "materials", "serch"):
        done = subprocess.run(
            [sys.executable, "-m", "fishermix_photos", "-q", name],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert f"No such command '{name}'" in done.stderr
        assert name != "serch" or "search" in done.stderr.replace("serch", "")
    assert "Import word vectors" in run(tmp_path, "vectors", "--help")[0]


@pytest.mark.slow
@shipped
def test_a_search_tokenizes_its_sentence_for_its_vector_and_its_phrase_only(tmp_path, monkeypatch):
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path))
    photos = copy_packaged_photos(tmp_path / "photos")
    functions_called_by("library", "add", photos)
    called = functions_called_by("search", "a zorblax cat", photos, "-n", "1")
    assert called.count(("text/tokens.py", "tokenize")) == 2


@pytest.mark.slow
@shipped
def test_a_library_is_updated_without_the_text_side(tmp_path, monkeypatch):
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path))
    photos = copy_packaged_photos(tmp_path / "photos")
    ImageTextModel.load().encode_text(["a cat"])  # imports what it needs
    for command, function in (("add", "add"), ("list", "list_folders"), ("update", "update")):
        called = functions_called_by("library", command, photos)
        assert ("cli/library.py", function) in called
        assert [place for place, _ in called if place.startswith("text/")] == []


def functions_called_by(*arguments):
    """(file, function) of the package for each call that a command makes in this thread."""
    called, packages = (
        [],
        tuple(f"{Path(one.__file__).parent}{os.sep}" for one in (fishermix, fishermix_photos)),
    )

    def record(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(packages):
            place = frame.f_code.co_filename.replace(os.sep, "/").rpartition("/src/")[2].partition("/")[2]
            called.append((place, frame.f_code.co_qualname))

    app = load_commands()
    sys.setprofile(record)
    try:
        app([str(argument) for argument in arguments], standalone_mode=False)
    finally:
        sys.setprofile(None)
    return called


@pytest.mark.slow
@shipped
def test_the_light_path_gives_the_bits_of_the_estimators():
    light, whole = ImageTextModel.load(), ImageTextModel.load()
    few = ["two dogs run on a beach", "a man in a well-known red hat"]
    many = [f"a {word} dog" for word in whole.sentence_encoder.vectors.words[50:250]]
    for sentences in (few, many):
        vectors = whole.sentence_encoder.transform(sentences)
        points = light.encode_text(sentences)
        assert "sentence_encoder" not in vars(light)
        np.testing.assert_array_equal(points, whole.joint_space.embed_right(vectors))
    again = pickle.loads(pickle.dumps(light))
    np.testing.assert_array_equal(again.encode_text(few), light.encode_text(few))
    assert again.key == light.key == whole.key
