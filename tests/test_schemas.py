"""Schemas: every wrong value of a saved file is one error that names the file and the field."""

import json

import numpy as np
import pytest

from fishermix import Captioner, Mixture
from fishermix.errors import FishermixError
from fishermix.experiments.reproduce import _load_result
from fishermix.model.hubness import HubnessCorrection
from fishermix.rows.files import open_table
from fishermix.schemas import Count, Json, Number, PlainName, Struct, dump, parse_json
from fishermix.vision.network_file import EXAMPLE, Network
from tests.fuzz import kinds


class Thing(Struct):
    count: Count
    numbers: list[Number] = []  # noqa: RUF012 - msgspec copies it
    name: PlainName = "file"
    extra: Json = None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", r"'count' is missing or invalid in thing\.json"),
        ('{"count": -1}', r"'count' is .* in thing\.json .*>= 0"),
        ('{"count": true}', "'count' is"),
        ('{"count": 1, "numbers": [1, 1e400]}', r"'numbers\[1\]' is"),
        ('{"count": 1, "numbers": [1, NaN]}', "not valid JSON"),
        ('{"count": 1, "name": "../secret"}', "'name' is"),
        ('{"count": 1, "name": ".."}', "'name' is"),
        ('{"count": 1, "name": "%s"}' % ("n" * 300), "'name' is"),
        ('{"count": 1, "extra": [[[[1]]]]}', "'extra"),
        ('{"count": 1, "other": %s}' % ("[" * 100_000 + "]" * 100_000), "nested too deeply"),
        ('{"count": 1, "name": "\\ud800"}', "not valid JSON|'name' is"),
        ("[]", r"thing\.json is invalid"),
        ("", r"thing\.json is not valid JSON"),
    ],
)
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(FishermixError, match=message):
        parse_json(text.encode(), Thing, "thing.json")


def test_unknown_fields_are_ignored_and_numpy_numbers_are_saved():
    assert parse_json(b'{"count": 1, "new": {"x": 1}}', Thing, "thing.json") == Thing(1)
    assert dump(Thing(np.int64(3), [np.float64(0.5)]))["numbers"] == [0.5]
    with pytest.raises(FishermixError, match="cannot be saved"):
        dump(Thing(1, [float("nan")]))


def change(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


# Each of these ended in a TypeError, KeyError, AttributeError, OverflowError or RecursionError.
@pytest.mark.parametrize(
    ("make", "load", "fields", "named"),
    [
        (kinds.make_captioner, Captioner.load, {"words": ["ENDSENT", {}, "x"]}, r"words\[1\]"),
        (kinds.make_captioner, Captioner.load, {"words": ["ENDSENT", "x", None]}, r"words\[2\]"),
        (kinds.make_mixture, Mixture.load, {"min_scale": "x"}, "min_scale"),
        (kinds.make_mixture, Mixture.load, {"parameters": [1]}, "parameters"),
        (kinds.make_mixture, Mixture.load, {"class": {}}, "class"),
        (kinds.make_mixture, Mixture.load, {"lower_bounds": [[]]}, r"lower_bounds\[0\]"),
        (kinds.make_mixture, Mixture.load, {"seed": 10**400}, "seed"),
        (kinds.make_cca, kinds.RegularizedCCA.load, {"params": {"scale": {}}}, r"params\.scale"),
        (kinds.make_cca, kinds.RegularizedCCA.load, {"method": []}, "method"),
        (kinds.make_hubness, lambda f: HubnessCorrection.load(f, 3), {"neighbours": 10**400}, "neighbours"),
    ],
)
def test_a_damaged_folder_is_one_error(make, load, fields, named, tmp_path):
    make(tmp_path)
    change(tmp_path / "config.json", **fields)
    with pytest.raises(
        FishermixError, match=rf"'{named}' is missing or invalid in .*config\.json|not valid JSON"
    ):
        load(tmp_path)


def test_a_deeply_nested_config_is_one_error(tmp_path):
    kinds.make_mixture(tmp_path)
    (tmp_path / "config.json").write_text('{"families": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(FishermixError, match="nested too deeply"):
        Mixture.load(tmp_path)


def test_a_sidecar_and_a_result_are_checked(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"")
    (tmp_path / "net.json").write_text(json.dumps(json.loads(EXAMPLE) | {"layout": []}))
    with pytest.raises(FishermixError, match=r"'layout' is missing or invalid in .*net\.json.*Example"):
        Network.find(tmp_path / "net.onnx")
    with pytest.raises(FishermixError, match="There is no encoder"):
        Network.find("n" * 5000)
    kinds.make_result(tmp_path)
    change(tmp_path / "result.json", seconds=None)
    with pytest.raises(FishermixError, match=r"'seconds' is .*result\.json.*Delete it"):
        _load_result(tmp_path / "result.json")


def test_damaged_tables_are_one_error(tmp_path):
    """Parsers of other packages raise classes of their own."""
    kinds.make_npy(tmp_path)
    data = (tmp_path / "rows.npy").read_bytes()
    (tmp_path / "rows.npy").write_bytes(data.replace(b"'descr'", b"'descr\\"))
    with pytest.raises(FishermixError, match=r"rows\.npy cannot be read"):
        open_table(tmp_path / "rows.npy")
    pytest.importorskip("pyarrow")
    kinds.make_parquet(tmp_path)
    data = bytearray((tmp_path / "rows.parquet").read_bytes())
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[start : start + 16] = b"\xff" * 16  # thrift, which says how the table is laid out
    (tmp_path / "rows.parquet").write_bytes(data)
    with pytest.raises(FishermixError, match=r"rows\.parquet cannot be read"):
        open_table(tmp_path / "rows.parquet")
