"""Write Markdown with one sentence per line: python tools/split_sentences.py [--check] docs/*.md README.md

Code, tables, headings, formulas of their own, comments, HTML and references stay as they are. A line that was
broken within a sentence is joined with the next one.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# What is not a sentence, or must not be joined with one.
KEPT = re.compile(r"\s*(?:$|#|\||<|>|:::|\$\$|\[[^\]]+\]: |!\[|\([\w-]+\)=$|---|===|\{)")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.) +")
# Code, formulas, links and quotations, in which a dot ends nothing.
SPAN = re.compile(r'`+[^`]*`+|\$[^$\n]+\$|\[[^\]]*\]\([^)]*\)|"[^"]{1,100}"')
# After a dot and closing brackets, but not after what is bold and begins a paragraph, or an abbreviation.
END = re.compile(
    r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bal\.)(?<!\bvs\.)(?<!\b[A-Z]\.)([)\"”\]]{0,2}\*?)"
    r" +(?=[A-Z0-9`*_\"“(\[$])"
)
REFERENCE = re.compile(r"[^.]*\b[A-Z]\. [^(]*\(\d{4}\)\.")


def split_sentences(text: str) -> list[str]:
    """The sentences of a paragraph."""
    if REFERENCE.match(text):
        return [text]
    spans: list[str] = []

    def hide(found: re.Match[str]) -> str:
        spans.append(found[0])
        return f"\0{len(spans) - 1}\0"

    hidden = SPAN.sub(hide, text)
    hidden = re.sub(r"(^|[.!?][)\"”*\]]{0,3} )\0", "\\1`\0", hidden)  # a span may begin a sentence
    lines = END.sub(r"\1\n", hidden).replace("`\0", "\0").split("\n")
    return [re.sub(r"\0(\d+)\0", lambda found: spans[int(found[1])], line) for line in lines]


def list_lines(lines: list[str]) -> Iterator[str]:
    """The lines of a file with one sentence each."""
    at = 0
    while at < len(lines):
        line = lines[at]
        fence = re.match(r"\s*(`{3,}|:{3,}|\$\$|~{3,})", line)
        if fence and not (fence[1] == "$$" and line.count("$$") > 1):
            end = at + 1
            while end < len(lines) and not lines[end].strip().startswith(fence[1]):
                end += 1
            yield from lines[at : end + 1]
            at = end + 1
            continue
        item = ITEM.match(line)
        if (KEPT.match(line) and not item) or line.startswith("    "):
            yield line
            at += 1
            continue
        indent = " " * len(item[0]) if item else re.match(r" *", line)[0]  # type: ignore[index]
        paragraph = [line[len(indent) :].strip()]
        at += 1
        while at < len(lines) and not KEPT.match(lines[at]) and not ITEM.match(lines[at]):
            if re.match(r"\s*(`{3,}|:{3,})", lines[at]) or paragraph[-1].endswith(("\\", "  ")):
                break
            paragraph.append(lines[at].strip())
            at += 1
        for number, sentence in enumerate(split_sentences(" ".join(paragraph))):
            yield f"{item[0] if item and number == 0 else indent}{sentence}"


def write_sentences(path: Path, check: bool) -> bool:
    """Whether a file had another form; without `check` it is written."""
    text = path.read_text("utf8")
    head = re.match(r"---\n.*?\n---\n", text, re.DOTALL)  # settings of a page or a model card
    start = head.end() if head else 0
    new = text[:start] + "\n".join(list_lines(text[start:].split("\n")))
    if new != text and not check:
        path.write_text(new, "utf8")
    return new != text


if __name__ == "__main__":
    arguments = sys.argv[1:]
    check = "--check" in arguments
    changed = [name for name in arguments if name != "--check" and write_sentences(Path(name), check)]
    print(*changed, sep="\n")
    sys.exit(1 if check and changed else 0)
