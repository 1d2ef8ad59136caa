"""Names of 0.1 keep working, and say what they are called now."""

import importlib
import sys

import pytest

from fishermix import aliases


@pytest.mark.parametrize(("old", "new"), sorted(aliases.MODULES.items()))
def test_old_modules_are_the_new_ones(old, new):
    sys.modules.pop(f"fishermix.{old}", None)
    with pytest.warns(DeprecationWarning, match=f"fishermix.{old} is now fishermix.{new}"):
        module = importlib.import_module(f"fishermix.{old}")
    target = importlib.import_module(f"fishermix.{new}")
    public = [name for name in vars(target) if not name.startswith("_")]
    assert public
    for name in public:
        assert getattr(module, name) is getattr(target, name)


def test_a_class_that_was_renamed_is_found_under_its_old_name():
    from fishermix.model.hubness import HubnessCorrection

    sys.modules.pop("fishermix.crowding", None)
    with pytest.warns(DeprecationWarning, match="model.hubness"):
        old = importlib.import_module("fishermix.crowding")
    assert old.Crowding is HubnessCorrection
    with pytest.raises(AttributeError):
        old.Cake  # noqa: B018


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("fishermix.cake")
