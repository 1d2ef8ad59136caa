"""Fixtures for the real data; tests that want them are skipped, saying so, where it is not there."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # a busy machine must not fail a test
settings.load_profile("untimed")

WORD2VEC = Path(__file__).parent / ".cache" / "word2vec"


@pytest.fixture(scope="session")
def flickr8k() -> Path:
    """The folder of the real Flickr8K."""
    data = os.environ.get("FISHERMIX_DATA")
    if not data or not (Path(data) / "flickr8k").is_dir():
        pytest.skip("set FISHERMIX_DATA to the folder that holds flickr8k/")
    return Path(data) / "flickr8k"


@pytest.fixture(scope="session")
def word2vec() -> Path:
    """The folder of the imported GoogleNews vectors."""
    if not (WORD2VEC / "config.json").is_file():
        pytest.skip("run `make word2vec` first")
    return WORD2VEC


@pytest.fixture(scope="session")
def rows():
    """(9000, 5) float32: three clusters, Gaussian in some dimensions and Laplacian in the others."""
    rng = np.random.default_rng(0)
    centers = 3 * rng.standard_normal((3, 5))
    noise = np.hstack([rng.standard_normal((9000, 2)), rng.laplace(size=(9000, 3))])
    return (centers[rng.integers(3, size=9000)] + noise).astype(np.float32)
