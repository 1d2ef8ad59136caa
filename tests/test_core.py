"""`fishermix-core`: the library without what photos need."""

import importlib.util
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("build_core", ROOT / "tools" / "build_core.py")
build_core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build_core)

WITHOUT_PHOTOS = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("PIL", "onnxruntime", "tokenizers", "typer", "click", "torch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import numpy as np
import fishermix

X = np.random.default_rng(0).normal(size=(100, 3))
mixture = fishermix.HybridMixture(2, random_state=0, verbose=True).fit(X)
mixture.save("mixture")
vectors = fishermix.FisherEncoder(fishermix.HybridMixture.load("mixture")).transform([X[:50], X[50:]])
cca = fishermix.RegularizedCCA(1).fit(X, X[:, :2])
words = fishermix.WordVectors(["dog", "cat"], np.eye(2))
sentences = fishermix.SentenceEncoder(words).transform(["a dog"])
print(vectors.shape, cca.transform(X).shape, sentences.shape)
try:
    fishermix.ImageEncoder
except ImportError as error:
    print(error)
"""


def test_the_library_works_without_what_photos_need(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_PHOTOS], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    shapes, error = run.stdout.splitlines()
    assert shapes == "(2, 12) (100, 1) (1, 2)"
    assert error == (
        "fishermix.ImageEncoder needs Pillow, which fishermix-core leaves out. Run: pip uninstall "
        "fishermix-core && pip install fishermix"
    )


def test_core_depends_on_nothing_that_only_photos_need():
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = tomllib.loads(build_core.describe_core((ROOT / "pyproject.toml").read_text()))["project"]
    assert core["name"] == "fishermix-core"
    assert core["version"] == whole["version"]
    assert "scripts" not in core
    left_out = {one.split(">")[0] for one in set(whole["dependencies"]) - set(core["dependencies"])}
    assert {"pillow", "onnxruntime", "tokenizers", "typer"} <= left_out <= set(build_core.NOT_IN_CORE)
    assert set(core["dependencies"]) < set(whole["dependencies"])


def test_the_wheel_of_core_is_small_and_complete(tmp_path):
    wheel = build_core.build_core(tmp_path)
    assert wheel.stat().st_size < 1_000_000
    names = zipfile.ZipFile(wheel).namelist()
    assert "fishermix/mixture/mixture.py" in names
    assert "fishermix/py.typed" in names
    assert not [name for name in names if "pretrained" in name]
