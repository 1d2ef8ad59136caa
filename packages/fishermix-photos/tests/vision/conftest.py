"""A small network and pictures for it."""

from pathlib import Path

import numpy as np
import odd_images
import pytest
from PIL import Image
from tiny_network import write_tiny_network


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
