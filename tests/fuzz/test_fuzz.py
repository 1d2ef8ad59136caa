"""A few damaged files of every kind, and every file that once was a finding. `make fuzz` does more."""

import json
import warnings
from pathlib import Path

import pytest

from tests.fuzz.kinds import KINDS
from tests.fuzz.run import CRASHES, Fuzzer

INPUTS = 60  # per kind: some seconds in all


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_read_or_refused(name, tmp_path):
    fuzzer = Fuzzer(name, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        findings = [fuzzer.run_one() for _ in range(INPUTS)]
    assert [finding for finding in findings if finding] == []
    assert fuzzer.tally.accepted < INPUTS  # the mutator does damage


@pytest.mark.parametrize("crash", sorted(CRASHES.glob("*.json")), ids=lambda path: path.stem)
def test_an_earlier_finding_is_gone(crash, tmp_path):
    found = json.loads(Path(crash).read_text())
    fuzzer = Fuzzer(found["kind"], tmp_path)
    assert fuzzer.try_file(found["file"], bytes.fromhex(found["data"])) is None
