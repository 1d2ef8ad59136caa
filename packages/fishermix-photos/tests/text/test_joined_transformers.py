"""Two transformers as one graph: `tools/add_gte_small.py`."""

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from fishermix.errors import FishermixError
from fishermix_photos.model.transformer import DEFAULT_TRANSFORMER, TOKENIZER, SentenceTransformer

TOOL = Path(__file__).parents[4] / "tools/add_gte_small.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("add_gte_small", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_joined_transformers_give_their_unit_vectors_side_by_side(tool, tmp_path):
    shipped = SentenceTransformer.find(DEFAULT_TRANSFORMER)
    tool.join([shipped, shipped], tmp_path / "joined")
    joined = SentenceTransformer(tmp_path / "joined")
    sentences = ["A dog runs on the beach.", "two dogs", "x"]
    one, both = shipped.encode(sentences), joined.encode(sentences)
    assert both.shape == (3, 2 * shipped.n_features)
    np.testing.assert_allclose(both, np.hstack([one, one]) / np.sqrt(2), atol=1e-6)


def test_transformers_with_other_tokenizers_cannot_be_joined(tool, tmp_path):
    shipped = SentenceTransformer.find(DEFAULT_TRANSFORMER)
    other = shutil.copytree(shipped.folder, tmp_path / "other")
    rules = (other / TOKENIZER).read_text().replace('"lowercase":true', '"lowercase":false')
    rules = rules.replace('"lowercase": true', '"lowercase": false')
    (other / TOKENIZER).write_text(rules)
    with pytest.raises(FishermixError, match="same tokenizer"):
        tool.join([shipped, SentenceTransformer(other)], tmp_path / "joined")
    assert not (tmp_path / "joined").exists()
