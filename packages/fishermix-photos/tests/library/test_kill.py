"""kill -9 of two writers at once, again and again: the library verifies after each, and nothing is lost.

`python tests/kills.py library --kills 200` does it for longer.
"""

import pytest
from library.library_kills import kill_writers


@pytest.mark.slow
def test_kills_of_two_writers_never_damage_the_library(tmp_path):
    assert kill_writers(tmp_path, kills=24) >= 24
