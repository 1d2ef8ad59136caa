"""A network small enough to run hundreds of images in a second, and pictures for it."""

import json
from pathlib import Path

import numpy as np
import odd_images
import onnx
import pytest
from PIL import Image

SIZE = 32
SIDECAR = {
    "size": SIZE,
    "layout": "NCHW",
    "channels": "RGB",
    "mean": [120, 115, 100],
    "std": [60, 58, 57],
    "input": "image",
    "output": "features",
}
GRAPH = """<ir_version: 8, opset_import: ["" : 17]>
tiny (float[n, 3, 32, 32] image) => (float[n, 12] features) {
  filtered = Conv <strides = [2, 2]> (image, w0, w1)
  positive = Relu (filtered)
  flat = Flatten (positive)
  features = Gemm <transB = 1> (flat, w2, w3)
}"""


def write_tiny_network(folder: Path, seed: int = 0, **sidecar: object) -> Path:
    """An ONNX file of one convolution and a dense layer with random weights, 12 features, and its JSON."""
    rng = np.random.default_rng(seed)
    model = onnx.parser.parse_model(GRAPH)
    weights = [
        rng.standard_normal((8, 3, 5, 5)),
        rng.standard_normal(8),
        rng.standard_normal((12, 8 * 14 * 14)) / 40,
        rng.standard_normal(12),
    ]
    for number, values in enumerate(weights):
        weight = onnx.numpy_helper.from_array(values.astype(np.float32), f"w{number}")
        model.graph.initializer.append(weight)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny.onnx"
    onnx.save(model, path)
    path.with_suffix(".json").write_text(json.dumps({**SIDECAR, **sidecar}))
    return path


@pytest.fixture
def tiny(tmp_path) -> Path:
    return write_tiny_network(tmp_path / "tiny network")


@pytest.fixture(scope="session")
def pictures() -> list[bytes]:
    """Different small photographs-to-be, as files' contents."""
    rng = np.random.default_rng(0)

    def picture(i: int) -> bytes:
        rough = Image.fromarray(rng.integers(0, 256, (5, 6, 3), np.uint8))
        return odd_images.encoded(
            rough.resize((40 + i % 7, 50), Image.Resampling.BICUBIC), "JPEG", quality=90
        )

    return [picture(i) for i in range(24)]
