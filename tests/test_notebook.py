"""In a Jupyter notebook: progress is a bar below the cell, and results show themselves."""

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
    time.sleep(0.3)
""",
    "estimator": """
from fishermix import FisherEncoder, HybridMixture
FisherEncoder(HybridMixture(3))
""",
    "hits": """
import tempfile
from pathlib import Path
from fishermix import ImageTextModel, PhotoIndex
from fishermix.cli.demo import copy_packaged_photos
show_progress(False)
home = Path(tempfile.mkdtemp())
index = PhotoIndex(copy_packaged_photos(home / "a <b>"), ImageTextModel.load(), home / "index")
index.update()
(index.folder / "coffee.png").unlink()
index.search("a cup of coffee", n=3)
""",
    "index": "index",
    "model": "index.model",
    "new model": "ImageTextModel()",
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


def test_progress_is_a_bar_that_is_redrawn_in_place(outputs):
    (bar,) = outputs["progress"]
    assert '<progress value="3" max="3">' in bar.data["text/html"]
    assert "counting &lt;photos&gt;: 3/3" in bar.data["text/html"]


def test_estimators_have_the_html_of_scikit_learn(outputs):
    html = outputs["estimator"][-1].data["text/html"]
    assert "sk-estimator" in html
    assert "HybridMixture" in html


def test_hits_are_thumbnails_and_a_photo_that_is_gone_says_so(outputs):
    html = outputs["hits"][-1].data["text/html"]
    assert html.count("data:image/jpeg;base64,") == 2
    assert "coffee.png" in html
    assert "Hit(" in outputs["hits"][-1].data["text/plain"]


def test_index_and_model_have_a_short_repr(outputs):
    assert outputs["index"][-1].data["text/plain"].endswith("a <b>', 15 photos)")
    assert re.fullmatch(
        r"ImageTextModel\(.*, efficientnet-lite2:depths, \d+ dimensions\)",
        outputs["model"][-1].data["text/plain"],
    )
    assert outputs["new model"][-1].data["text/plain"].endswith("not fitted)")
