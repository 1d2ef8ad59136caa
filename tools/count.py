"""Counts what a reader of both packages has to read: `python tools/count.py [--names | --table | --update]`.

Lines are those below `src` of both packages; code lines are without blank lines, comments and docstrings.
The length of a function includes its docstring. Its complexity is one more than the number of
its branches: if, elif, for, while, except, with `and`/`or`, conditional expressions, loops and conditions of
comprehensions, and cases. Nested functions count on their own. A method's `self` and `cls` are no parameters.
The options of a command of the command line are parameters of its function: they are counted apart.

`--names` lists the functions and modules behind each number. `--table` compares them, and those of
`tools/trace.py`, with version 0.2 and with the aims for 0.3. `--update` writes the figures of both tools into
docs/architecture.md.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = tuple(sorted(ROOT.glob("packages/*/src/*/")))
SMALL_MODULE, LONG_FUNCTION, MANY_PARAMETERS, COMPLEX = 60, 50, 6, 15
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Numbers = tuple[int, ...]


@dataclass
class Counts:
    """What was counted; every list holds the places behind its number."""

    lines: dict[str, int] = field(default_factory=dict)  # by package
    code: dict[str, int] = field(default_factory=dict)
    modules: int = 0
    small_modules: list[str] = field(default_factory=list)
    long_functions: list[str] = field(default_factory=list)
    many_parameters: list[str] = field(default_factory=list)
    many_options: list[str] = field(default_factory=list)
    complex_functions: list[str] = field(default_factory=list)
    function_imports: list[str] = field(default_factory=list)
    places: dict[str, set[str]] = field(default_factory=dict)  # modules by the name that they define

    @property
    def shared_names(self) -> list[str]:
        """Names that several modules define."""
        return [
            f"{name}: {', '.join(sorted(modules))}"
            for name, modules in sorted(self.places.items())
            if len(modules) > 1
        ]


def count_all(sources: tuple[Path, ...] = SOURCES) -> Counts:
    """Count the modules of all packages."""
    counts = Counts()
    for source in sources:
        counts.lines[source.name] = counts.code[source.name] = 0
        for path in sorted(source.rglob("*.py")):
            _count_module(counts, source, path)
    return counts


def _count_module(counts: Counts, source: Path, path: Path) -> None:
    text = path.read_text("utf8")
    tree = ast.parse(text)
    name = f"{source.name}/{path.relative_to(source).as_posix()}"
    lines = text.count("\n")
    counts.lines[source.name] += lines
    counts.code[source.name] += count_code(text, tree)
    counts.modules += 1
    if lines < SMALL_MODULE:
        counts.small_modules.append(f"{name} ({lines})")
    for defined in _list_definitions(tree):
        counts.places.setdefault(defined, set()).add(name)
    for function, is_method in _list_functions(tree):
        _count_function(counts, name, function, is_method)


def _count_function(counts: Counts, module: str, function: Function, is_method: bool) -> None:
    place = f"{module}:{function.lineno} {function.name}"
    length, parameters, complexity = (
        measure_length(function),
        count_parameters(function, is_method),
        measure_complexity(function),
    )
    if length > LONG_FUNCTION:
        counts.long_functions.append(f"{place} ({length})")
    if parameters > MANY_PARAMETERS:
        listed = counts.many_options if is_command(module, function) else counts.many_parameters
        listed.append(f"{place} ({parameters})")
    if complexity > COMPLEX:
        counts.complex_functions.append(f"{place} ({complexity})")
    for node in _walk_own(function):
        if isinstance(node, ast.Import | ast.ImportFrom):
            counts.function_imports.append(f"{module}:{node.lineno}")


def count_code(text: str, tree: ast.Module) -> int:
    """Lines that hold a token other than a comment or a docstring."""
    documented: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node) is not None:
            documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    skipped = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - documented)


def measure_length(function: Function) -> int:
    """Lines from `def` to the last one."""
    return (function.end_lineno or 0) - function.lineno + 1


def count_parameters(function: Function, is_method: bool) -> int:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    present = [argument for argument in every if argument is not None]
    return len(present) - (is_method and bool(present) and present[0].arg in ("self", "cls"))


def measure_complexity(function: Function) -> int:
    complexity = 1
    for node in _walk_own(function):
        if isinstance(node, BRANCHES):
            complexity += 1
        elif isinstance(node, ast.BoolOp):
            complexity += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            complexity += 1 + len(node.ifs)
    return complexity


def is_command(module: str, function: Function) -> bool:
    """Whether the parameters of a function are options of the command line."""
    return "/cli/" in module and any("command" in ast.unparse(mark) for mark in function.decorator_list)


def _list_functions(tree: ast.Module) -> Iterator[tuple[Function, bool]]:
    """All functions, and whether each is defined in a class."""
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield child, isinstance(node, ast.ClassDef)


def _walk_own(function: Function) -> Iterator[ast.AST]:
    """All nodes of a function, without those of functions and classes defined in it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _list_definitions(tree: ast.Module) -> Iterator[str]:
    """Functions, classes and constants at the top of a module, without its private ones."""
    for node in tree.body:
        names = []
        if isinstance(node, Function | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        yield from (name for name in names if not name.startswith("__"))


def format_counts(counts: Counts, with_names: bool) -> str:
    """One line per number; with names, the places behind it."""
    lines = [
        f"{package}: {counts.lines[package]:,} lines, {counts.code[package]:,} of code"
        for package in counts.lines
    ]
    lines.append(
        f"both: {sum(counts.lines.values()):,} lines, {sum(counts.code.values()):,} of code, "
        f"in {counts.modules} modules"
    )
    for heading, places in (
        (f"modules under {SMALL_MODULE} lines", counts.small_modules),
        (f"functions over {LONG_FUNCTION} lines", counts.long_functions),
        (f"functions with over {MANY_PARAMETERS} parameters", counts.many_parameters),
        (f"commands with over {MANY_PARAMETERS} options", counts.many_options),
        (f"functions with a complexity over {COMPLEX}", counts.complex_functions),
        ("names defined in several modules", counts.shared_names),
        ("imports inside functions", counts.function_imports),
    ):
        lines.append(f"{heading}: {len(places)}")
        if with_names:
            lines += [f"  {place}" for place in places]
    return "\n".join(lines)


# (what, version 0.2, must, goal)
AIMS = (
    ("lines of both packages", (31_524,), (23_000,), (20_000,)),
    ("code lines of both packages", (21_486,), (16_000,), (14_000,)),
    ("lines of fishermix", (), (11_000,), (9_000,)),
    ("search: files / returns", (33, 120), (18, 60), (15, 40)),
    ("training: files / returns", (50, 1_230), (32, 600), (28, 400)),
    (f"modules under {SMALL_MODULE} lines", (42,), (12,), (8,)),
    (f"functions over {LONG_FUNCTION} lines", (15,), (8,), (4,)),
    (f"functions with over {MANY_PARAMETERS} parameters, commands included", (46,), (25,), (15,)),
    (f"functions with a complexity over {COMPLEX}", (24,), (10,), (5,)),
)


def compare(counts: Counts) -> list[tuple[str, Numbers, Numbers, Numbers, Numbers]]:
    """(what, version 0.2, must, goal, now) of everything that has an aim."""
    from trace import trace_flow

    search, training = trace_flow("search"), trace_flow("train")
    now = (
        (sum(counts.lines.values()),),
        (sum(counts.code.values()),),
        (counts.lines["fishermix"],),
        (search.files, search.returns),
        (training.files, training.returns),
        (len(counts.small_modules),),
        (len(counts.long_functions),),
        (len(counts.many_parameters) + len(counts.many_options),),
        (len(counts.complex_functions),),
    )
    return [(*aim, found) for aim, found in zip(AIMS, now, strict=True)]


def format_table(counts: Counts) -> str:
    """The comparison as a table in Markdown."""
    rows = ["| | 0.2 | must | goal | now |", "|---|--:|--:|--:|--:|"]
    for what, *values in compare(counts):
        cells = (" / ".join(f"{number:,}" for number in value) or "–" for value in values)
        rows.append(f"| {what} | {' | '.join(cells)} |")
    rows.append(f"\n{len(counts.many_options)} of the functions with many parameters are commands.")
    return "\n".join(rows)


def update_document(document: Path, counts: Counts) -> None:
    """Write the figures of now into the tables of a document."""
    from trace import FLOWS, trace_flow

    text = document.read_text("utf8")
    for what, *_, now in compare(counts):
        if len(now) == 1:
            text = re.sub(rf"(?m)^(\| {re.escape(what)} \| )[\d,]+", rf"\g<1>{now[0]:,}", text)
    for flow in FLOWS:
        traced = trace_flow(flow)
        row = rf"(\(`{flow}`\) \| )[\d,]+ \| [\d,]+"
        text = re.sub(row, rf"\g<1>{traced.files} | {traced.returns:,}", text)
    document.write_text(text, "utf8")


def main() -> None:
    counts = count_all()
    if "--update" in sys.argv:
        update_document(ROOT / "docs" / "architecture.md", counts)
    elif "--table" in sys.argv:
        print(format_table(counts))
    else:
        print(format_counts(counts, with_names="--names" in sys.argv))


if __name__ == "__main__":
    main()
