"""How much there is to read, and how far a reader has to jump: limits, and what the documents say of both."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf8")
FLOWS = {"search": (24, 89), "em": (7, 22), "train": (32, 603), "dask": (8, 31)}  # files, returns
LIMITS = {
    "lines of both packages": 25_830,
    "lines of fishermix": 11_107,
    "modules under 60 lines": 12,
    "functions over 50 lines": 0,
    "functions with over 6 parameters": 21,  # commands included
    "functions with a complexity over 15": 4,
}


def run(tool):
    done = subprocess.run([sys.executable, ROOT / "tools" / tool], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def to_number(text):
    return int(text.replace(",", ""))


@pytest.fixture(scope="module")
def traced():
    printed = re.findall(r"(?m)^(\w+): ([\d,]+) files, ([\d,]+) returns$", run("trace.py"))
    return {flow: (to_number(files), to_number(returns)) for flow, files, returns in printed}


@pytest.fixture(scope="module")
def counted():
    printed = run("count.py")
    lines = re.findall(r"(?m)^(\w+): ([\d,]+) lines, ", printed)
    found = {
        "lines of both packages" if name == "both" else f"lines of {name}": to_number(number)
        for name, number in lines
    }
    found |= {what: to_number(number) for what, number in re.findall(r"(?m)^([^:]+): ([\d,]+)$", printed)}
    found["functions with over 6 parameters"] += found.pop("commands with over 6 options")
    return found


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_enters_few_files(flow, traced):
    assert traced[flow][0] <= FLOWS[flow][0]
    assert traced[flow][1] <= FLOWS[flow][1]


@pytest.mark.parametrize("what", LIMITS)
def test_there_is_not_more_to_read(what, counted):
    assert counted[what] <= LIMITS[what]


@pytest.mark.parametrize("flow", FLOWS)
def test_the_architecture_has_the_figures_of_a_flow(flow, traced):
    """`python tools/count.py --update` writes them."""
    [(files, returns)] = re.findall(rf"\| .*\(`{flow}`\) \| ([\d,]+) \| ([\d,]+) \|", ARCHITECTURE)
    assert to_number(files) == traced[flow][0]
    assert to_number(returns) == pytest.approx(traced[flow][1], rel=0.05)  # threads take turns


@pytest.mark.parametrize("what", LIMITS)
def test_the_architecture_has_the_counts(what, counted):
    """`python tools/count.py --update` writes them."""
    [number] = re.findall(rf"(?m)^\| {what}.*? \| ([\d,]+) \|", ARCHITECTURE)
    tolerance = 0.02 if "lines of" in what else 0
    assert to_number(number) == pytest.approx(counted[what], rel=tolerance)


def test_every_file_that_the_architecture_names_exists():
    sources = [*ROOT.glob("packages/*/src/*/")]
    named = set(re.findall(r"`([\w/]+\.(?:py|js|svg|toml|sh))`", ARCHITECTURE))
    missing = [
        name
        for name in sorted(named)
        if not any((place / name).exists() for place in (*sources, ROOT, *ROOT.glob("packages/*")))
    ]
    assert not missing
