"""What the documentation shows is what happens."""

import doctest
from pathlib import Path

import fishermix.cca.estimator

DOCS = Path(__file__).parents[2] / "docs" / "cca.md"


def test_the_documentation_runs():
    result = doctest.testfile(str(DOCS), module_relative=False)
    assert result.attempted > 15
    assert result.failed == 0


def test_the_docstring_runs():
    result = doctest.testmod(fishermix.cca.estimator)
    assert result.attempted > 3
    assert result.failed == 0
