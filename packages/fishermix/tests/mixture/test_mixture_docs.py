"""The family of one's own in docs/mixtures.md is a family, and is chosen where it belongs."""

import re
from pathlib import Path

import numpy as np
from scipy.integrate import trapezoid

DOCUMENT = Path(__file__).parents[4] / "docs" / "mixtures.md"


def test_the_documented_family_works():
    first, *others = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf8"), re.DOTALL)
    second = next(block for block in others if "class Sech" in block)
    names: dict = {}
    exec(first, names)
    assert names["mixture"].choice_.tolist() == [[0, 1]]
    exec(second, names)
    family, mixture = names["Sech"](), names["mixture"]
    z = np.linspace(-4, 4, 41)
    slope = (family.log_density(z + 1e-6) - family.log_density(z - 1e-6)) / 2e-6
    np.testing.assert_allclose(family.location_score(z), -slope, atol=1e-6)
    grid = np.linspace(-40, 40, 200_001)
    assert np.isclose(trapezoid(np.exp(family.log_density(grid)), grid), 1)  # NumPy's is new in 2.0
    assert mixture.choice_.max() <= 2
    assert np.mean(mixture.choice_ == 2) >= 0.5
