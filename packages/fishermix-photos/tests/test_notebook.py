"""In a Jupyter notebook: progress is shown, and results show themselves."""

import re
import sys

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")


CELLS = {
    "progress": """
from fishermix.progress import show_progress, track
import time
show_progress()
for item in track(range(3), "counting <photos>"):
    time.sleep(0.4)
""",
    "estimator": """
from fishermix import FisherEncoder, HybridMixture
FisherEncoder(HybridMixture(3))
""",
    "results": """
import tempfile
from pathlib import Path
from fishermix_photos import PhotoLibrary
from fishermix_photos.cli.demo import copy_packaged_photos
show_progress(False)
home = Path(tempfile.mkdtemp())
photos = copy_packaged_photos(home / "a <b>")
library = PhotoLibrary(home / "library")
library.update([photos])
(photos / "coffee.png").unlink()
library.search("a cup of coffee")
""",
    "library": "library",
    "model": "library.model",
}


@pytest.fixture(scope="module")
def outputs():
    """The outputs of each cell, from a kernel of this environment."""
    cells = [nbformat.v4.new_code_cell(code) for code in CELLS.values()]
    client = nbclient.NotebookClient(nbformat.v4.new_notebook(cells=cells), timeout=300)
    client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable
    client.execute()
    return {name: cell.outputs for name, cell in zip(CELLS, cells)}


@pytest.mark.slow
def test_progress_is_a_line(outputs):
    (line,) = outputs["progress"]
    assert re.fullmatch(r"counting <photos>: 3/3 after \d s \(done\)\n", line.text)


@pytest.mark.slow
def test_estimators_have_the_html_of_scikit_learn(outputs):
    html = outputs["estimator"][-1].data["text/html"]
    assert "sk-estimator" in html
    assert "HybridMixture" in html


def test_results_are_thumbnails_and_a_photo_that_is_gone_says_so(outputs):
    html = outputs["results"][-1].data["text/html"]
    assert html.count("data:image/jpeg;base64,") == 9
    assert "coffee.png" in html
    assert "Photo(" in outputs["results"][-1].data["text/plain"]


def test_library_and_model_have_a_short_repr(outputs):
    assert outputs["library"][-1].data["text/plain"].endswith("library', 15 photos)")
    assert re.fullmatch(r"ImageTextModel\(\d+ dimensions, \w+\)", outputs["model"][-1].data["text/plain"])
