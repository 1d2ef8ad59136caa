"""Loads the tests that an installed package ships, with some of its names replaced by ours."""

import importlib
import importlib.util
from pathlib import Path
from unittest.mock import patch

import pytest


def load_tests(package: str, path: str, replaced: dict[str, object]) -> dict:
    """The names of the module `path` in the installed `package`, or {} if it ships no such tests.

    replaced: "module.name" -> object that the tests import in its place.
    """
    root = importlib.util.find_spec(package)
    if root is None or not (file := Path(root.submodule_search_locations[0]) / path).is_file():
        return {}
    spec = importlib.util.spec_from_file_location(f"peer_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    patches = [patch(name, new) for name, new in replaced.items()]
    for one in patches:
        one.start()
    try:
        spec.loader.exec_module(module)
    finally:
        for one in patches:
            one.stop()
    return vars(module)


def select_tests(names: dict, differences: dict[str, str]) -> dict:
    """The tests among these names, those in `differences` marked as skipped with that reason."""
    tests = {name: value for name, value in names.items() if name.startswith("test_")}
    unknown = set(differences) - set(tests)
    assert not (tests and unknown), f"the peer no longer has {sorted(unknown)}"
    for name, reason in differences.items():
        if name in tests:
            tests[name] = make_skipped(reason)
    return tests


def make_skipped(reason: str):
    """One skipped test for all parameters of the peer's."""

    @pytest.mark.skip(reason=reason)
    def test_skipped():
        pass

    return test_skipped
