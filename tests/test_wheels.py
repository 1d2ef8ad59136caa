"""Each wheel works in an environment that has nothing but the wheel and the dependencies it declares.

The environments are empty. Each declared dependency, and what it needs in turn, is linked into them from the
environment of the tests; whatever a wheel does not declare cannot be imported there.
"""

import email
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import fishermix
import numpy as np
import pytest
from packaging.requirements import Requirement
from PIL import Image

pytest.importorskip("hatchling")
ROOT = Path(__file__).parents[1]
MEGABYTE = 1_000_000
OURS = ("fishermix", "fishermix-photos", "fishermix-lab")


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """The wheels, by the name of the distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    found = {}
    for name in OURS:
        build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
        run(*build, cwd=ROOT / "packages" / name)
        [found[name]] = folder.glob(f"{name.replace('-', '_')}-[0-9]*.whl")
    return found


def list_dependencies(asked: Distribution, found: dict[str, Distribution]) -> None:
    """Add what a distribution needs, and what that needs in turn; extras only if they are asked for."""
    for text in asked.requires or ():
        requirement = Requirement(text)
        extras = requirement.extras or {""}
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if wanted and requirement.name not in (*found, *OURS):
            assert extras == {""}, f"{text}: extras of dependencies are not linked"
            found[requirement.name] = distribution(requirement.name)
            list_dependencies(found[requirement.name], found)


def make_environment(folder: Path, *wheels: Path) -> Path:
    """An environment with these wheels and links to their dependencies; returns its folder of programs."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    [packages] = folder.glob("lib/python*/site-packages")
    python = folder / "bin" / "python"
    install = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
    )
    run(*install, "--no-compile", *wheels)
    found: dict[str, Distribution] = {}
    for wheel in wheels:
        [information] = packages.glob(f"{wheel.name.partition('-')[0]}-*.dist-info")
        list_dependencies(PathDistribution(information), found)
    for dependency in found.values():
        for name in {file.parts[0] for file in dependency.files or ()} - {"..", "__pycache__", "."}:
            target, link = Path(dependency.locate_file(name)), packages / name
            if target.exists() and not link.exists():
                link.symlink_to(target)
    return python.parent


def python_of(readme: Path) -> str:
    [block] = re.findall(r"```python\n(.*?)```", readme.read_text("utf8"), re.DOTALL)
    return block


@pytest.mark.slow
def test_both_wheels_have_the_version_of_the_library(wheels):
    assert {wheel.name.split("-")[1] for wheel in wheels.values()} == {fishermix.__version__}


@pytest.mark.slow
def test_the_wheel_of_the_library_is_small_and_knows_no_photos(wheels):
    assert wheels["fishermix"].stat().st_size < MEGABYTE
    names = zipfile.ZipFile(wheels["fishermix"]).namelist()
    assert "fishermix/mixture/em.py" in names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"fishermix"}
    assert not [name for name in names if "photos" in name or "pretrained" in name]


@pytest.mark.slow
def test_the_library_fits_a_mixture_where_nothing_of_the_app_is_installed(wheels, tmp_path):
    programs = make_environment(tmp_path / "environment", wheels["fishermix"])
    assert not (programs / "fishermix").exists()
    absent = (
        "numba",
        "PIL",
        "onnxruntime",
        "typer",
        "rich",
        "tokenizers",
        "torch",
        "dask",
        "fishermix_photos",
    )
    script = "import sys; sys.modules['sqlite3'] = sys.modules['_sqlite3'] = None\n"
    script += python_of(ROOT / "packages" / "fishermix" / "README.md")
    script += "print(mixture.choice_.shape, encoder.transform(images).shape)\n"
    script += "from importlib.util import find_spec\n"
    script += f"print([name for name in {absent} if find_spec(name)])\n"
    assert run(programs / "python", "-c", script, cwd=tmp_path) == "(8, 16) (2, 256)\n[]\n"


@pytest.mark.slow
def test_the_library_shows_progress_on_a_terminal_without_rich(wheels, tmp_path):
    programs = make_environment(tmp_path / "environment", wheels["fishermix"])
    script = "import numpy as np; from fishermix import GaussianMixture\n"
    script += "GaussianMixture(2, verbose=1).fit(np.random.default_rng(0).normal(size=(100, 2)))\n"
    terminal, other_end = os.openpty()
    done = subprocess.run([programs / "python", "-c", script], stderr=other_end, stdout=other_end)
    assert b"Error" not in os.read(terminal, 100_000)
    assert done.returncode == 0


@pytest.mark.slow
def test_the_app_brings_the_command_and_searches(wheels, tmp_path):
    programs = make_environment(tmp_path / "environment", wheels["fishermix"], wheels["fishermix-photos"])
    names = zipfile.ZipFile(wheels["fishermix-photos"]).namelist()
    assert not [name for name in names if name.startswith(("fishermix/", "tests/"))]
    (photos := tmp_path / "photos").mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), np.uint8)).save(photos / f"{number}.png")
    home = os.environ | {"FISHERMIX_HOME": str(tmp_path / "home")}
    command = programs / "fishermix"
    assert fishermix.__version__ in run(command, "--version", cwd=tmp_path, env=home)
    printed = run(command, "--quiet", "search", "a dog", photos, "-f", cwd=tmp_path, env=home)
    assert sorted(printed.split()) == sorted(str(path) for path in photos.iterdir())
    assert run(command, "--quiet", "caption", photos / "0.png", cwd=tmp_path, env=home).strip()
    script = "from importlib.util import find_spec\n"
    script += "print([name for name in ('numba', 'torch', 'fishermix_lab') if find_spec(name)])"
    assert run(programs / "python", "-c", script) == "[]\n"
    refused = subprocess.run([command, "train"], capture_output=True, text=True, env=home, cwd=tmp_path)
    assert refused.returncode == 2
    assert "fishermix-lab" in refused.stderr


@pytest.mark.slow
def test_the_lab_brings_its_commands(wheels, tmp_path):
    programs = make_environment(tmp_path / "environment", *wheels.values())
    assert "--recipe" in run(programs / "fishermix", "reproduce", "--help", cwd=tmp_path)
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("2 3\ndog 1 0 0\ncat 0 1 0\n")
    run(programs / "fishermix", "vectors", "import", vectors, tmp_path / "out", cwd=tmp_path)
    script = "import sys; from fishermix import WordVectors; print(len(WordVectors.load(sys.argv[1])))"
    assert run(programs / "python", "-c", script, tmp_path / "out") == "2\n"


@pytest.mark.slow
def test_every_license_in_the_wheel_of_the_app_is_listed_with_its_text(wheels):
    """Networks, word vectors and sentences have licenses of their own."""
    archive = zipfile.ZipFile(wheels["fishermix-photos"])
    [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = email.message_from_bytes(archive.read(name))
    licenses = {"BSD-3-Clause", "Apache-2.0", "MIT", "CC-BY-4.0"}
    assert set(metadata["License-Expression"].split(" AND ")) == licenses
    texts = metadata.get_all("License-File")
    inside = [name for name in archive.namelist() if name.startswith("fishermix_photos/")]
    own = {
        f"src/{name}"
        for name in inside
        if name.rpartition("/")[2] in ("LICENSE", "NOTICE") or "/licenses/" in name
    }
    assert set(texts) == {"LICENSE"} | own
    assert len(own) == 6
    for text in texts:
        assert archive.read(name.replace("METADATA", f"licenses/{text}"))
