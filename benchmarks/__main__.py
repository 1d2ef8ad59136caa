"""Run all benchmarks, or those named, and print one table: every module here offers `run() -> list[Row]`.

Times are seconds, wall time first and CPU time of all threads in brackets, the best of several runs in turns
with the peer's. BENCH_FULL=1 adds the large sizes.
"""

import pkgutil
import sys
from importlib import import_module

from rich.console import Console
from rich.table import Table

import benchmarks
from benchmarks.timing import describe_machine

HELPERS = ("timing", "numpy_hybrid")
HEADINGS = ("work", "threads", "ours: wall (CPU)", "peer", "ratio", "wanted", "roofline", "memory")


def main(names: list[str]) -> None:
    known = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_"))
    known = [name for name in known if name not in HELPERS]
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"no benchmark called {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    print(describe_machine(), flush=True)
    for name in names or known:
        table = Table(title=name, title_justify="left")
        for heading in HEADINGS:
            table.add_column(heading, overflow="fold")
        for row in import_module(f"benchmarks.{name}").run():
            table.add_row(*row.cells())
        Console(width=180).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
