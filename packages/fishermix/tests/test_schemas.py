"""Schemas: every wrong value of a saved file is one error that names the file and the field."""

import json

import numpy as np
import pytest
from fishermix import HybridMixture, Mixture, RegularizedCCA
from fishermix.joint.hubness import HUBNESS_KIND, HubnessCorrection
from fishermix.rows import open_table
from fishermix.saved import Count, Json, Number, PlainName, Struct, dump, load_folder, parse_json
from fishermix_photos import Captioner
from fishermix_photos.model.captioner.decoding import Weights
from fishermix_photos.model.captioner.vocabulary import CaptionVocabulary
from refuses import refuses

RNG = np.random.default_rng(0)


def make_mixture(folder):
    HybridMixture(2, max_iter=3, tol=0, random_state=0).fit(RNG.laplace(size=(60, 3))).save(folder)


def make_cca(folder):
    x = RNG.normal(size=(40, 4))
    RegularizedCCA(2).fit(x, x @ RNG.normal(size=(4, 3))).save(folder)


def make_hubness(folder):
    HubnessCorrection.from_embeddings(RNG.normal(size=(5, 3)), RNG.normal(size=(6, 3)), 2).save(folder)


def load_hubness(folder):
    return HubnessCorrection.from_saved(load_folder(folder, HUBNESS_KIND), 3)


def make_captioner(folder):
    units, dimension, words = 4, 3, ["ENDSENT", "red", "photo"]
    shapes = (4 * units, dimension), (4 * units, units), (4 * units,), (len(words), units), (len(words),)
    weights = Weights(*(RNG.normal(size=shape).astype(np.float32) for shape in shapes))
    points = RNG.normal(size=(len(words), dimension)).astype(np.float32)
    Captioner(CaptionVocabulary(words), points, weights, "key").save(folder)


class Thing(Struct):
    count: Count
    numbers: list[Number] = []  # noqa: RUF012 - msgspec copies it
    name: PlainName = "file"
    extra: Json = None


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{}", "count"),
        ('{"count": -1}', "count"),
        ('{"count": true}', "count"),
        ('{"count": 1, "numbers": [1, 1e400]}', "numbers[1]"),
        ('{"count": 1, "numbers": [1, NaN]}', None),
        ('{"count": 1, "name": "../secret"}', "name"),
        ('{"count": 1, "name": ".."}', "name"),
        ('{"count": 1, "name": "%s"}' % ("n" * 300), "name"),
        ('{"count": 1, "extra": [[[[1]]]]}', None),
        ('{"count": 1, "other": %s}' % ("[" * 100_000 + "]" * 100_000), None),
        ('{"count": 1, "name": "\\ud800"}', None),
        ("[]", None),
        ("", None),
    ],
)
def test_what_is_wrong_is_named(text, field):
    """With the name of the field, if the file can be parsed."""
    with refuses("damaged", **({"field": field} if field else {})):
        parse_json(text.encode(), Thing, "thing.json")


def test_unknown_fields_are_ignored_and_numpy_numbers_are_saved():
    assert parse_json(b'{"count": 1, "new": {"x": 1}}', Thing, "thing.json") == Thing(1)
    assert dump(Thing(np.int64(3), [np.float64(0.5)]))["numbers"] == [0.5]
    with refuses("cannot_save"):
        dump(Thing(1, [float("nan")]))


def change(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


# Each of these ended in a TypeError, KeyError, AttributeError, OverflowError or RecursionError.
@pytest.mark.parametrize(
    ("make", "load", "fields", "named"),
    [
        (make_captioner, Captioner.load, {"words": ["ENDSENT", {}, "x"]}, r"words\[1\]"),
        (make_captioner, Captioner.load, {"words": ["ENDSENT", "x", None]}, r"words\[2\]"),
        (make_mixture, Mixture.load, {"min_scale": "x"}, "min_scale"),
        (make_mixture, Mixture.load, {"parameters": [1]}, "parameters"),
        (make_mixture, Mixture.load, {"class": {}}, "class"),
        (make_mixture, Mixture.load, {"lower_bounds": [[]]}, r"lower_bounds\[0\]"),
        (make_mixture, Mixture.load, {"seed": 10**400}, "seed"),
        (make_cca, RegularizedCCA.load, {"params": {"scale": {}}}, r"params\.scale"),
        (make_cca, RegularizedCCA.load, {"method": []}, "method"),
        (
            make_hubness,
            load_hubness,
            {"neighbors": 10**400},
            "neighbors",
        ),
    ],
)
def test_a_damaged_folder_is_one_error(make, load, fields, named, tmp_path):
    make(tmp_path)
    change(tmp_path / "config.json", **fields)
    with refuses("damaged"):
        load(tmp_path)


def test_a_deeply_nested_config_is_one_error(tmp_path):
    make_mixture(tmp_path)
    (tmp_path / "config.json").write_text('{"families": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with refuses("damaged"):
        Mixture.load(tmp_path)


def test_damaged_tables_are_one_error(tmp_path):
    """Parsers of other packages raise classes of their own."""
    np.save(tmp_path / "rows.npy", RNG.normal(size=(20, 3)).astype(np.float32))
    data = (tmp_path / "rows.npy").read_bytes()
    (tmp_path / "rows.npy").write_bytes(data.replace(b"'descr'", b"'descr\\"))
    with refuses("damaged"):
        open_table(tmp_path / "rows.npy")
