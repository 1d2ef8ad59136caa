"""Feed damaged files to every reader: python -m tests.fuzz.run [--count N] [--minutes M] [--kind NAME] ...

Only a result or a `FishermixError` is allowed. Anything else is a finding: the damaged file is kept in
tests/fuzz/crashes, which the tests read again. Slow inputs and the growth of the memory are reported.
"""

import argparse
import json
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from fishermix.errors import FishermixError
from tests.fuzz.kinds import KINDS

CRASHES = Path(__file__).parent / "crashes"
SLOW = 1.0  # seconds of CPU time
ROUND = 1000  # inputs of a kind before the next kind has its turn


@dataclass
class Tally:
    """What became of the inputs of one kind."""

    inputs: int = 0
    accepted: int = 0
    findings: dict[str, int] = field(default_factory=dict)
    slowest: float = 0.0
    memory: float = 0.0  # MB by which the peak of the process grew


class Fuzzer:
    """Damaged copies of one seed, all in one folder."""

    def __init__(self, name, scratch, seed=0):
        self.name, self.kind, self.tally = name, KINDS[name], Tally()
        self.rng = random.Random(f"{name} {seed}")
        self.seed_folder, self.folder = scratch / "seed", scratch / "damaged"
        self.seed_folder.mkdir()
        self.kind.make(self.seed_folder)
        shutil.copytree(self.seed_folder, self.folder)
        self.kind.read(self.folder)  # a valid seed is read
        self.small = {path: path.read_bytes() for path in self.seed_folder.rglob("*") if path.is_file()}

    def run_one(self):
        """One input; returns the finding, or None."""
        self.restore()
        name, data = self.kind.mutate(self.folder, self.rng)
        return self.try_file(name, data)

    def restore(self):
        for path, data in self.small.items():
            (self.folder / path.relative_to(self.seed_folder)).write_bytes(data)

    def try_file(self, name, data):
        self.kind.place(self.folder, name, data)
        begun = time.perf_counter()
        finding = self.read()
        seconds = time.perf_counter() - begun
        if seconds > SLOW:  # the machine may have been busy: once more, by CPU time
            begun = time.process_time()
            finding = self.read() or finding
            seconds = time.process_time() - begun
            self.tally.slowest = max(self.tally.slowest, seconds)
        self.tally.inputs += 1
        if finding:
            name = finding.split(":")[0]
            self.tally.findings[name] = self.tally.findings.get(name, 0) + 1
        return finding or (f"{seconds:.1f} s of CPU time" if seconds > SLOW else None)

    def read(self):
        """The finding, or None."""
        try:
            self.kind.read(self.folder)
            self.tally.accepted += 1
        except FishermixError:
            pass
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:120]}"
        return None

    def run(self, count, kept):
        """So many more inputs; the first finding of each class is kept."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(count):
            self.restore()
            file, data = self.kind.mutate(self.folder, self.rng)
            finding = self.try_file(file, data)
            if finding and (self.name, finding.split(":")[0]) not in kept:
                kept.add((self.name, finding.split(":")[0]))
                keep(self.name, file, data, finding)
                print(f"{self.name}: {finding}", file=sys.stderr)
        self.tally.memory += (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def keep(name, file, data, finding):
    CRASHES.mkdir(exist_ok=True)
    number = len(list(CRASHES.iterdir()))
    about = {"kind": name, "file": file, "finding": finding, "data": data.hex()}
    (CRASHES / f"{name.replace(' ', '-')}-{number}.json").write_text(json.dumps(about, indent=1) + "\n")


def make_table(fuzzers):
    lines = ["| file kind | inputs | read | refused | other | slowest | memory (MB) |"]
    lines.append("|---|--:|--:|--:|--:|--:|--:|")
    for fuzzer in fuzzers:
        tally, others = fuzzer.tally, sum(fuzzer.tally.findings.values())
        slowest = f"{tally.slowest:.1f} s" if tally.slowest else f"below {SLOW:.0f} s"
        lines.append(
            f"| {fuzzer.name} | {tally.inputs:,} | {tally.accepted:,} | "
            f"{tally.inputs - tally.accepted - others:,} | {others:,} | {slowest} | {tally.memory:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10**9, help="inputs per kind")
    parser.add_argument("--minutes", type=float, default=10**6, help="in all")
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", type=Path, help="write the table to this file after every round")
    given = parser.parse_args()
    begun, kept = time.monotonic(), set()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        fuzzers = []
        for name in given.kind or KINDS:
            (place := Path(scratch, name)).mkdir()
            fuzzers.append(Fuzzer(name, place, given.seed))
        while time.monotonic() - begun < 60 * given.minutes:
            missing = [fuzzer for fuzzer in fuzzers if fuzzer.tally.inputs < given.count]
            if not missing:
                break
            for fuzzer in missing:
                fuzzer.run(min(ROUND, given.count - fuzzer.tally.inputs), kept)
                if given.table:
                    given.table.write_text(make_table(fuzzers))
    print(make_table(fuzzers), end="")
    sys.exit(1 if kept else 0)


if __name__ == "__main__":
    main()
