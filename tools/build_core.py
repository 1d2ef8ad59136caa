"""Builds `fishermix-core`: the library without the photo model, onnxruntime, Pillow and the command line.

    python tools/build_core.py [OUT]        # writes OUT/fishermix_core-VERSION-py3-none-any.whl

The wheel has the same package `fishermix` from the same tree without what photos need. Its pyproject.toml is
derived from the one here, so that versions and dependencies are in one place.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOT_IN_CORE = ("pillow", "pillow-heif", "onnxruntime", "tokenizers", "typer")
DROPPED_TABLES = ("project.scripts", "dependency-groups", "tool.hatch.build.targets.sdist")


def describe_core(pyproject: str) -> str:
    """The text of pyproject.toml for fishermix-core."""
    text = pyproject.replace('name = "fishermix"', 'name = "fishermix-core"', 1)
    text = re.sub(
        r'^description = ".*"$',
        'description = "fishermix without the photo search: mixtures, Fisher vectors and CCA"',
        text,
        count=1,
        flags=re.MULTILINE,
    )
    for package in NOT_IN_CORE:
        text = re.sub(rf'^  "{package}[<>=~!;\[ ][^"]*",\n', "", text, flags=re.MULTILINE)
    for table in DROPPED_TABLES:
        text = re.sub(rf"^\[{re.escape(table)}\]\n.*?(?=^\[|\Z)", "", text, flags=re.DOTALL | re.MULTILINE)
    return text


def build_core(out: Path) -> Path:
    """Build the wheel in a copy of the tree; returns its path."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        ignored = shutil.ignore_patterns("pretrained", "__pycache__")
        shutil.copytree(ROOT / "src" / "fishermix", copy / "src" / "fishermix", ignore=ignored)
        for name in ("README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        (copy / "pyproject.toml").write_text(
            describe_core((ROOT / "pyproject.toml").read_text("utf8")), "utf8"
        )
        built = copy / "wheel"
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", built, copy]
        subprocess.run(command, check=True)
        (wheel,) = built.glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, out))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "dist")
    print(build_core(parser.parse_args().out))
