"""Run all benchmarks, or those named, and print one table: every module here offers `run() -> list[Row]`.

Times are seconds, wall time first and CPU time of all threads in brackets, the best of several runs in turns
with the peer's. BENCH_FULL=1 adds the large sizes.
"""

import pkgutil
import sys
import time
from importlib import import_module

from rich.console import Console
from rich.table import Table

import benchmarks
from benchmarks.timing import describe_machine

# The last ones need photos and have their own tables.
HELPERS = ("timing", "numpy_hybrid", "formats", "library", "queries", "calibration")
HEADINGS = ("work", "threads", "ours: wall (CPU)", "peer", "ratio", "wanted", "roofline", "memory")


def main(names: list[str]) -> None:
    known = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_"))
    known = [name for name in known if name not in HELPERS]
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"no benchmark called {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    machine = describe_machine()
    table = Table(title=machine, title_justify="left", caption="seconds; ratio: ours / peer")
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for name in names or known:
        begin = time.monotonic()
        table.add_section()
        for row in import_module(f"benchmarks.{name}").run():
            table.add_row(*row.cells())
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    Console(width=180).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
