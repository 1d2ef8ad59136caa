"""Run all benchmarks, or those named, and print one table: every module here offers `run() -> list[Row]`."""

import pkgutil
import sys
from importlib import import_module

from rich.console import Console
from rich.table import Table

import benchmarks


def main(names: list[str]) -> None:
    known = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_"))
    known = [name for name in known if name != "timing"]
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"no benchmark called {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    for name in names or known:
        table = Table(title=name, title_justify="left")
        for heading in ("work", "ours", "peer", "ratio", "wanted", "memory"):
            table.add_column(heading, overflow="fold")
        for row in import_module(f"benchmarks.{name}").run():
            table.add_row(*row.cells())
        Console(width=150).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
