"""Fixtures that scikit-learn's own tests take from its conftest."""

import numpy as np
import pytest


@pytest.fixture
def global_dtype():
    """float64: fitted attributes of fishermix have this type, whatever the type of the rows."""
    return np.float64


@pytest.fixture
def global_random_seed():
    return 42
