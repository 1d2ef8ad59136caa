"""What an index leaves out. git is the oracle of the patterns."""

import os
import shutil
import subprocess
import time

import pytest
from fishermix_photos.index.scan import is_ignored, parse_patterns, scan_folder
from refuses import refuses
from tiny_model import paint

PATHS = [
    *("a.jpg", "a.gif", "keep.gif", "raw/a.jpg", "2019/raw/a.jpg", "2019/x/y/export/a.jpg"),
    *("2019/export/a.jpg", "export/a.jpg", "screenshots/a.jpg", "deep/screenshots/b.jpg", "deep/ab.jpg"),
    *("deep/[x].jpg", "deep/a+b.jpg", "2019/a.gif", "a b.jpg", "ä.jpg", "deep/er/a1.jpg", "deep/er/ab.jpg"),
    *("foo*bar.jpg", "fooxbar.jpg", "x .jpg", "x.jpg", "!important.jpg", "raw  /a.jpg"),
]
PATTERNS = [
    ["*.gif"],
    ["*.gif", "!keep.gif"],
    ["screenshots/"],
    ["/raw"],
    ["raw"],
    ["2019/**/export"],
    ["2019/*"],
    ["**/export"],
    ["deep/**"],
    ["deep/a?.jpg"],
    ["a[0-9].jpg"],
    ["[!a]*.jpg"],
    ["a+b.jpg", "a b.jpg"],
    ["# a.jpg", "", "\\#x"],
    ["deep/er/"],
    ["*", "!*/", "!*.gif"],
    ["ä*"],
    [r"deep/\[x].jpg"],
    [r"foo\*bar.jpg"],
    [r"*x\ .jpg", "raw \\ "],
    ["a.jpg  ", r"\!important.jpg"],
    ["/*", "!/deep"],
    ["**/er/*", "!**/ab.jpg"],
]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@pytest.mark.parametrize("patterns", PATTERNS, ids=" ".join)
def test_patterns_mean_what_they_mean_to_git(tmp_path, patterns):
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("\n".join(patterns))
    listed = subprocess.run(
        ["git", "-C", tmp_path, "ls-files", "-z", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    )
    expected = {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name} - {".gitignore"}
    (tmp_path / ".fishermixignore").write_text("\n".join(patterns))
    assert set(scan_folder(tmp_path).photos) == expected


def test_folders_of_other_programs_and_hidden_files_are_counted(tmp_path):
    for path in ("a.png", ".b.png", ".cache/c.png", "@eaDir/d.png", "x/node_modules/e.png", "x/Thumbs/f.png"):
        paint(tmp_path / path, "red")
    (tmp_path / ".notes").write_text("no photo")
    listing = scan_folder(tmp_path)
    assert list(listing.photos) == ["a.png"]
    assert listing.explain_left_out() == ("Left out: 1 @eaDir, 1 Thumbs, 2 hidden, 1 node_modules.",)


def test_each_folder_has_its_own_patterns(tmp_path):
    for path in ("a.png", "sub/a.png", "sub/b.png", "sub/deep/a.png", "other/b.png"):
        paint(tmp_path / path, "red")
    (tmp_path / "sub" / ".fishermixignore").write_text("/a.png\n")
    assert set(scan_folder(tmp_path).photos) == {"a.png", "sub/b.png", "sub/deep/a.png", "other/b.png"}
    (tmp_path / ".fishermixignore").write_text("b.png\n")
    assert set(scan_folder(tmp_path).photos) == {"a.png", "sub/deep/a.png"}
    assert set(scan_folder(tmp_path / "sub", root=tmp_path).photos) == {"deep/a.png"}
    (tmp_path / "sub" / ".fishermixignore").write_bytes(b"\xff\xfe[\n[z-a].png\n")
    # What it was to leave out must not be indexed.
    with refuses("wrong_ignore_file"):
        scan_folder(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_a_pipe_is_no_ignore_file(tmp_path):
    os.mkfifo(tmp_path / ".fishermixignore")
    with refuses("wrong_ignore_file"):
        scan_folder(tmp_path)


def test_no_pattern_takes_exponential_time():
    with refuses("wrong_ignore_file"):
        parse_patterns(["*1" * 14 + "zz"], "", "file")
    for pattern in ("**/a/" * 8 + "b", "*1*1*1*/*1*1*1*/zz", "**/*1*1*1*/**/zz"):
        with refuses("wrong_ignore_file"):
            parse_patterns([pattern], "", "file")
    for pattern, path in (("*1" * 4 + "zz", "1" * 150 + ".jpg"), ("**/" * 12 + "zz", "/".join("a" * 100))):
        began = time.monotonic()
        assert not is_ignored(path, [parse_patterns([pattern], "", "file")])
        assert time.monotonic() - began < 5
