"""Texts and defaults of options, written out for a fast `--help`, are those of the modules they describe."""

import inspect
from dataclasses import asdict

from fishermix_lab.commands.captioner import Decoding
from fishermix_lab.commands.options import DATA_HELP, RECIPE_HELP, VARIANT_HELP
from fishermix_lab.datasets.readers import FORMS
from fishermix_lab.recipe import RECIPES, VARIANTS
from fishermix_photos.model.captioner.captioner import Captioner


def test_the_help_names_every_recipe_and_variant():
    assert f"One of {', '.join(RECIPES)}." == RECIPE_HELP
    assert ", ".join(VARIANTS) == VARIANT_HELP


def test_the_help_names_every_kind_of_data_set():
    assert f"A data set: {FORMS}." == DATA_HELP


def test_the_defaults_of_captions_are_those_of_the_captioner():
    assert asdict(Decoding()) == {
        name: parameter.default
        for name, parameter in inspect.signature(Captioner.describe).parameters.items()
        if name in ("beam", "samples")
    }
