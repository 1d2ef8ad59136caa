"""Run all benchmarks, or those named, and print a table of each.

Every module here offers `run() -> list[Row]`:

    python -m benchmarks [NAME ...] [--json FILE]

Times are seconds, wall time first and CPU time of all threads in brackets, the best of several runs in turns
with the peer's. BENCH_FULL=1 adds the large sizes. `--json benchmarks/speed.json` also keeps the rows. Some
of them are the table of docs/speed.md, which `python tools/document_results.py` writes.
"""

import argparse
import json
import pkgutil
import sys
import time
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

import benchmarks
from benchmarks.timing import Row, describe_machine

# The last ones need photos and have their own tables.
HELPERS = ("timing", "numpy_hybrid", "formats", "library", "queries", "calibration")
HEADINGS = ("work", "threads", "ours: wall (CPU)", "peer", "ratio", "memory")


def print_table(rows: list[Row], machine: str) -> None:
    table = Table(title=machine, title_justify="left", caption="seconds; ratio: ours / peer")
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row.cells())
    Console(width=180).print(table)


def write_rows(file: Path, name: str, rows: list[Row], machine: str) -> None:
    """Put rows into a JSON file; they replace those of the same work, threads and peer."""
    known = json.loads(file.read_text("utf8")) if file.exists() else []
    measured = [{"benchmark": name, **row.to_json(), "machine": machine.partition(";")[0]} for row in rows]
    same = [(row["work"], row["threads"], row.get("peer")) for row in measured]
    kept = [row for row in known if (row["work"], row["threads"], row.get("peer")) not in same]
    lines = ",\n".join(json.dumps(row) for row in [*kept, *measured])
    file.write_text(f"[\n{lines}\n]\n", "utf8")


def main() -> None:
    known = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_"))
    known = [name for name in known if name not in HELPERS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"out of {', '.join(known)}; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also keep the rows in this file")
    given = parser.parse_args()
    unknown = set(given.names) - set(known)
    if unknown:
        parser.error(f"no benchmark called {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    machine = describe_machine()
    for name in given.names or known:
        begin = time.monotonic()
        rows = import_module(f"benchmarks.{name}").run()
        print_table(rows, machine)
        if given.json and rows:
            write_rows(given.json, name, rows, machine)
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
