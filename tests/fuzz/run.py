"""Feed damaged files to every reader: python -m tests.fuzz.run [--count N] [--minutes M] [--kind NAME] ...

Only a result or a `FishermixError` is allowed. Anything else is a finding: the damaged file is kept in
tests/fuzz/crashes, which the tests read again. So is an input that takes more than a second of CPU time or
ends the process. Each round of a kind runs in a child process of its own, which shows its peak memory.
"""

import argparse
import json
import logging
import os
import pickle
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
MEMORY = 4 << 30  # bytes of address space that the inputs may take on top of what the process has
ROUND = 2000  # inputs of a kind before the next kind has its turn


@dataclass
class Tally:
    """What became of the inputs of one kind."""

    inputs: int = 0
    accepted: int = 0
    findings: dict[str, int] = field(default_factory=dict)
    slowest: float = 0.0  # seconds of CPU time
    memory: float = 0.0  # MB by which the peak of a child process exceeds what it began with


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
        files = [path for path in self.seed_folder.rglob("*") if path.is_file()]
        self.seed = {path.relative_to(self.seed_folder).as_posix(): path.read_bytes() for path in files}

    def run_one(self):
        """One input; returns the finding, or None."""
        return self.try_file(*self.kind.mutate(self.seed, self.rng))

    def try_file(self, name, data):
        placed = self.kind.place(self.seed, name, data)
        # Readers of databases write: all is restored. Of other kinds, only what was damaged.
        for file, content in (self.seed | placed if self.kind.restores_all else placed).items():
            (self.folder / file).write_bytes(content)
        begun = time.perf_counter()
        finding = self.read(self.tally)
        seconds = time.perf_counter() - begun
        if seconds > self.tally.slowest:  # the machine may have been busy: once more, by CPU time
            begun = time.process_time()
            self.read(Tally())
            seconds = min(seconds, time.process_time() - begun)
            self.tally.slowest = max(self.tally.slowest, seconds)
        for file in () if self.kind.restores_all else placed:
            (self.folder / file).write_bytes(self.seed[file])
        self.tally.inputs += 1
        if finding:
            name = finding.split(":")[0]
            self.tally.findings[name] = self.tally.findings.get(name, 0) + 1
        return finding or (f"{seconds:.1f} s of CPU time" if seconds > SLOW else None)

    def read(self, tally):
        """The finding, or None."""
        try:
            self.kind.read(self.folder)
            tally.accepted += 1
        except FishermixError:
            pass
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of a Rust library is no Exception
            return f"{type(error).__name__}: {str(error)[:120]}"
        return None

    def run(self, count, kept):
        """This many more inputs in a child process; the first finding of each class is kept."""
        receiver, sender = os.pipe()
        state = self.folder.parent / "state"
        child = os.fork()
        if not child:
            os.close(receiver)
            try:
                self._run_here(count, kept, state)
                with os.fdopen(sender, "wb") as pipe:
                    pickle.dump((self.tally, self.rng, kept), pipe)
            finally:
                os._exit(0)
        os.close(sender)
        with os.fdopen(receiver, "rb") as pipe:
            answer = pipe.read()
        _, status = os.waitpid(child, 0)
        if answer:
            self.tally, self.rng, found = pickle.loads(answer)
            kept |= found
        else:  # it died: the input that killed it is the one in `state`
            name, data, self.tally, self.rng = pickle.loads(state.read_bytes())
            self._keep(kept, f"killed by signal {os.WTERMSIG(status)}", name, data)

    def _run_here(self, count, kept, state):
        before = _peak()
        for _ in range(count):
            name, data = self.kind.mutate(self.seed, self.rng)
            if self.kind.may_crash:
                state.write_bytes(pickle.dumps((name, data, self.tally, self.rng)))
            if finding := self.try_file(name, data):
                self._keep(kept, finding, name, data)
        self.tally.memory = max(self.tally.memory, _peak() - before)

    def _keep(self, kept, finding, file, data):
        what = finding.split(":")[0]
        if finding.startswith("killed"):
            self.tally.findings[what] = self.tally.findings.get(what, 0) + 1
            self.tally.inputs += 1
        if (self.name, what) in kept:
            return
        kept.add((self.name, what))
        CRASHES.mkdir(exist_ok=True)
        number = len(list(CRASHES.iterdir()))
        about = {"kind": self.name, "file": file, "finding": finding, "data": data.hex()}
        name = f"{self.name.replace(' ', '-')}-{number}.json"
        (CRASHES / name).write_text(json.dumps(about, indent=1) + "\n")
        print(f"{self.name}: {finding}", flush=True)


def _peak():
    """The peak memory of this process in MB, as the kernel reports it; a child starts with that of now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def make_table(fuzzers):
    lines = ["| file kind | inputs | read | refused | other | slowest (s) | memory (MB) |"]
    lines.append("|---|--:|--:|--:|--:|--:|--:|")
    for fuzzer in fuzzers:
        tally, others = fuzzer.tally, sum(fuzzer.tally.findings.values())
        refused = tally.inputs - tally.accepted - others
        lines.append(
            f"| {fuzzer.name} | {tally.inputs:,} | {tally.accepted:,} | {refused:,} | {others:,} "
            f"| {tally.slowest:.2f} | {tally.memory:.0f} |"
        )
    return "\n".join(lines) + "\n"


def limit_memory():
    """An input that asks for gigabytes gets a MemoryError, as in the process that decodes pictures."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def silence():
    """No warning, log or remark of a decoder on the terminal; findings go to standard output."""
    warnings.simplefilter("ignore")
    logging.disable()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10**9, help="inputs per kind")
    parser.add_argument("--minutes", type=float, default=10**6, help="in all")
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: all")
    parser.add_argument("--part", default="1/1", help="2/4: every fourth kind, from the second on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", type=Path, help="write the table to this file after every round")
    given = parser.parse_args()
    first, step = map(int, given.part.split("/"))
    begun, kept = time.monotonic(), set()
    limit_memory()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        fuzzers = []
        for name in (given.kind or list(KINDS))[first - 1 :: step]:
            (place := Path(scratch, name)).mkdir()
            fuzzers.append(Fuzzer(name, place, given.seed))
        silence()  # from now on: a seed that cannot be read is an error to see
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
