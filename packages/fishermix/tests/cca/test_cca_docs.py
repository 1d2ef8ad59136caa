"""What the documentation shows is what happens."""

import doctest
from pathlib import Path

import fishermix.cca.cross_validation
import fishermix.cca.estimator
import pytest

DOCS = Path(__file__).parents[4] / "docs" / "cca.md"


def test_the_documentation_runs():
    result = doctest.testfile(str(DOCS), module_relative=False)
    assert result.attempted > 15
    assert result.failed == 0


@pytest.mark.parametrize("module", [fishermix.cca.estimator, fishermix.cca.cross_validation])
def test_the_docstring_runs(module):
    result = doctest.testmod(module)
    assert result.attempted >= 2
    assert result.failed == 0
