"""Write all messages of errors and warnings, to be read as text: python tools/list_messages.py

A test compares `tests/messages.txt` with the code, so that a change of a message is reviewed as a sentence.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILE = ROOT / "tests" / "messages.txt"
WARNINGS = ("warn_user",)


def list_error_classes(trees: dict[Path, ast.Module]) -> set[str]:
    """The names of `FishermixError` and of its subclasses."""
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    found = {"FishermixError"}
    while more := {one.name for one in classes if {ast.unparse(base) for base in one.bases} & found} - found:
        found |= more
    return found


def write_template(value: ast.expr) -> str:
    """A message with its expressions in braces."""
    if isinstance(value, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
            for part in value.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        )
    return str(value.value) if isinstance(value, ast.Constant) else f"{{{ast.unparse(value)}}}"


def list_messages(tree: ast.Module, names: set[str]) -> Iterator[str]:
    """The code, if it is named, and the message of each error and warning of a module."""
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    for call in sorted(calls, key=lambda call: call.lineno):
        name = ast.unparse(call.func)
        if name in names and call.args:
            codes = [ast.unparse(word.value).strip("'") for word in call.keywords if word.arg == "code"]
            kind = codes[0] if codes else name
            yield f"{kind:<18} {write_template(call.args[0])}".rstrip()


def format_messages() -> str:
    """The text of `tests/messages.txt`."""
    trees = {
        path.relative_to(source): ast.parse(path.read_text("utf8"))
        for source in sorted(ROOT.glob("packages/*/src"))
        for path in sorted(source.rglob("*.py"))
    }
    names = list_error_classes(trees) | set(WARNINGS)
    parts = []
    for path, tree in trees.items():
        if messages := list(list_messages(tree, names)):
            parts.append("\n".join([str(path), *messages]))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    FILE.write_text(format_messages(), "utf8")
