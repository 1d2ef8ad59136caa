"""Run all benchmarks, or those named, and print a table of each.

Every module here offers `run() -> list[Row]`:

    python -m benchmarks [NAME ...] [--markdown FILE]

Times are seconds, wall time first and CPU time of all threads in brackets, the best of several runs in turns
with the peer's. BENCH_FULL=1 adds the large sizes. `--markdown docs/speed.md` also writes each table into
this file, between the lines `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

import argparse
import pkgutil
import re
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
HEADINGS = ("work", "threads", "ours: wall (CPU)", "peer", "ratio", "wanted", "roofline", "memory")


def print_table(rows: list[Row], machine: str) -> None:
    table = Table(title=machine, title_justify="left", caption="seconds; ratio: ours / peer")
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row.cells())
    Console(width=180).print(table)


def write_table(file: Path, name: str, rows: list[Row], machine: str) -> None:
    """Replace what stands between the marks of this benchmark; a file without them stays as it is."""
    lines = [
        machine.replace("\n", ".  \n") + ".",
        "",
        f"| {' | '.join(HEADINGS)} |",
        "|---" * len(HEADINGS) + "|",
    ]
    lines += [f"| {' | '.join(row.cells())} |" for row in rows]
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    text = file.read_text()
    marked = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not marked.search(text):
        sys.exit(f"{file} has no lines '{begin.strip()}' and '{end}'.")
    file.write_text(marked.sub(lambda _: begin + "\n".join(lines) + "\n" + end, text))


def main() -> None:
    known = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_"))
    known = [name for name in known if name not in HELPERS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"out of {', '.join(known)}; default: all")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables into this file")
    given = parser.parse_args()
    unknown = set(given.names) - set(known)
    if unknown:
        parser.error(f"no benchmark called {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    machine = describe_machine()
    for name in given.names or known:
        begin = time.monotonic()
        rows = import_module(f"benchmarks.{name}").run()
        print_table(rows, machine)
        if given.markdown and rows:
            write_table(given.markdown, name, rows, machine)
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
