"""Types and help, as a user of the library sees them."""

import inspect
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import fishermix
import fishermix_photos
import numpy as np
import pytest
from fishermix.text.whitening import Whitening
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler

ROOT = Path(__file__).parent.parent
SOURCES = sorted(ROOT.glob("packages/*/src"))
MISTAKES = {
    'HybridMixture("three")': "arg-type",
    'HybridMixture(3, max_iter="many")': "arg-type",
    'Mixture(3, max_iter="many")': "arg-type",
    "HybridMixture(3).fit(X).weights_.upper()": "attr-defined",
    'HybridMixture(3).fit(X).bic(X) + "1"': "operator",
    'FisherEncoder(HybridMixture(3), power="half")': "arg-type",
    'RegularizedCCA(reg_x="small")': "arg-type",
    "RegularizedCCA().fit(X, X).transform(X).upper()": "attr-defined",
}


def check_types(folder: Path, script: str) -> str:
    """What `mypy --strict` says about a script of a user's."""
    path = folder / "script.py"
    path.write_text(script)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir"]
    command += [str(folder / "cache"), str(path)]
    environment = os.environ | {"MYPYPATH": os.pathsep.join(map(str, SOURCES))}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_mypy_strict_knows_the_types_of_a_users_script(tmp_path):
    pytest.importorskip("mypy")
    right = (ROOT / "tests" / "user_script.py").read_text()
    # One run for both, because most of the time goes into reading numpy.
    last = right.count("\n")
    said = check_types(tmp_path, right + "\n".join(MISTAKES) + "\n")
    found = {int(line): kind for line, kind in re.findall(r"script.py:(\d+): error: .*\[([\w-]+)\]", said)}
    expected = {last + number: kind for number, kind in enumerate(MISTAKES.values(), 1)}
    assert found == expected, said


DOCUMENTED = [
    fishermix.Mixture,
    fishermix.GaussianMixture,
    fishermix.LaplacianMixture,
    fishermix.HybridMixture,
    fishermix.FisherEncoder,
    fishermix.OnRows,
    fishermix.VLADEncoder,
    fishermix.BagOfWordsEncoder,
    fishermix.SpatialPyramid,
    fishermix.RegularizedCCA,
    fishermix.RegularizedCCACV,
    fishermix.SentenceEncoder,
    fishermix_photos.ImageEncoder,
    Whitening,
]


def list_entries(documented: type, section: str) -> dict[str, str]:
    """Name and type of each entry of a section of a numpydoc docstring; each has a description."""
    text = inspect.getdoc(documented) or ""
    found = re.search(rf"^{section}\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", text, re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^(\w[\w, ]*) : (.+)\n {4}\S", found.group(1), re.MULTILINE) if found else []
    return {name: kind for names, kind in entries for name in names.split(", ")}


@pytest.mark.parametrize("documented", DOCUMENTED, ids=lambda documented: documented.__name__)
def test_help_lists_every_parameter(documented):
    assert list(list_entries(documented, "Parameters")) == list(inspect.signature(documented).parameters)


@cache
def fit_all() -> dict[type, Any]:
    """A fitted object of each estimator, by its class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    sets = [X[:30], X[30:]]
    placed = [np.hstack([one, rng.uniform(size=(30, 2))]) for one in sets]
    fitted = [
        *(kind(2, random_state=0).fit(X) for kind in DOCUMENTED[:4]),
        fishermix.FisherEncoder(fishermix.GaussianMixture(1)).fit(sets),
        fishermix.OnRows(StandardScaler()).fit(sets),
        fishermix.VLADEncoder(KMeans(2)).fit(sets),
        fishermix.BagOfWordsEncoder(KMeans(2)).fit(sets),
        fishermix.SpatialPyramid(fishermix.BagOfWordsEncoder(KMeans(2))).fit(placed),
        fishermix.RegularizedCCA(1, reg_x=0.1, reg_y=0.1).fit(X, X),
        fishermix.RegularizedCCACV(1, ridges=[0.1]).fit(X, X),
        Whitening("pca").fit(X),
    ]
    return {type(one): one for one in fitted}


NOT_FITTED_HERE = {fishermix.SentenceEncoder, fishermix_photos.ImageEncoder}


@pytest.mark.parametrize(
    "estimator", [one for one in DOCUMENTED if one not in NOT_FITTED_HERE], ids=lambda one: one.__name__
)
def test_help_lists_every_attribute_with_its_shape(estimator):
    fitted = fit_all()[estimator]
    entries = list_entries(estimator, "Attributes")
    public = {name for name in dir(fitted) if name.endswith("_") and not name.startswith("_")}
    assert public <= set(entries), public - set(entries)
    for name in public:
        if isinstance(value := getattr(fitted, name), np.ndarray):
            shape = re.fullmatch(r"ndarray of shape \((.*?),?\)", entries[name])
            assert shape, f"{name} : {entries[name]}"
            assert len(shape.group(1).split(",")) == value.ndim, name
