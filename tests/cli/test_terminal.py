"""Pictures in the terminal: the escape sequences are decoded back to the picture; they are asked first."""

import base64
import io
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_model import paint

from fishermix.cli.terminal import QUESTION, encode_picture, read_reply

SHARP = Image.fromarray(np.random.default_rng(3).integers(0, 256, (37, 61, 3), np.uint8))


def decode_kitty(data):
    commands = re.findall(rb"\x1b_G([^;]*);([^\x1b]*)\x1b\\", data)
    assert b"".join(b"\x1b_G%s;%s\x1b\\" % one for one in commands) == data.rstrip(b"\n")
    keys = [dict(pair.split(b"=") for pair in head.split(b",")) for head, _ in commands]
    assert keys[0][b"a"] == b"T"
    assert keys[0][b"f"] == b"100"
    assert [one[b"m"] for one in keys] == [b"1"] * (len(keys) - 1) + [b"0"]
    assert max(len(chunk) for _, chunk in commands) <= 4096
    return Image.open(io.BytesIO(base64.b64decode(b"".join(chunk for _, chunk in commands))))


def decode_iterm2(data):
    found = re.fullmatch(rb"\x1b\]1337;File=inline=1;size=(\d+);([^:]*):([^\x07]*)\x07\n?", data)
    content = base64.b64decode(found[3])
    assert len(content) == int(found[1])
    return Image.open(io.BytesIO(content))


def decode_sixel(data):
    """A terminal's side of the protocol, letter by letter."""
    body = re.fullmatch(rb"\x1bP0;1;0q(.*)\x1b\\\n?", data, re.DOTALL)[1].decode()
    width, height = map(int, re.match(r'"1;1;(\d+);(\d+)', body).groups())
    canvas, palette = np.zeros((height + 6, width, 3)), {}
    x = y = color = 0
    for token in re.finditer(r'"[\d;]*|#(\d+)(;2;(\d+);(\d+);(\d+))?|!(\d+)(.)|([$-])|([?-~])', body):
        number, definition, *rgb, count, repeated, move, letter = token.groups()
        if number is not None:
            color = int(number)
            if definition:
                palette[color] = [int(part) * 255 / 100 for part in rgb]
        elif move:
            x, y = 0, y + 6 * (move == "-")
        elif letter or repeated:
            for _ in range(int(count or 1)):
                for row in range(6):
                    if (ord(letter or repeated) - 63) >> row & 1:
                        canvas[y + row, x] = palette[color]
                x += 1  # noqa: SIM113 (a cursor, not a count)
    assert not canvas[height:].any()
    return Image.fromarray(canvas[:height].round().astype(np.uint8))


@pytest.mark.parametrize(("protocol", "decode"), [("kitty", decode_kitty), ("iterm2", decode_iterm2)])
def test_kitty_and_iterm2_carry_every_pixel(protocol, decode):
    large = SHARP.resize((400, 300))
    for image in (SHARP, large):
        assert np.array_equal(np.asarray(decode(encode_picture(image, protocol)).convert("RGB")), image)


@pytest.mark.parametrize("size", [(1, 1), (7, 6), (40, 13), (61, 37)])
def test_sixel_draws_the_picture_in_256_colors(size):
    image = Image.effect_noise(size, 60).convert("L").convert("RGB")
    drawn = decode_sixel(encode_picture(image, "sixel"))
    wanted = image.quantize(256).convert("RGB")
    assert drawn.size == size
    # Colors are given in whole percent: at most half a percent of 255 is lost.
    assert np.abs(np.asarray(drawn, int) - np.asarray(wanted, int)).max() <= 2


def test_what_a_terminal_says():
    assert read_reply(b"\x1b_Gi=31;OK\x1b\\\x1b[?62;c") == "kitty"
    assert read_reply(b"\x1b[?62;4;22c") == "sixel"
    assert read_reply(b"\x1b[?4;22c") is None  # the first number is the class of the terminal
    assert read_reply(b"\x1b[?64;14;22c") is None
    assert read_reply(b"\x1b_Gi=31;ENOTSUP\x1b\\\x1b[?1;2c") is None
    assert read_reply(b"") is None


def run_in_terminal(folder, home, reply, environment=None, arguments=("--preview",)):
    """`fishermix search red` in a terminal that answers `reply`; what it printed."""
    pty = pytest.importorskip("pty")
    code = (
        "from tiny_model import TinyModel; from fishermix.model.model import ImageTextModel; "
        "ImageTextModel.load = TinyModel.load; from fishermix.cli import main; main()"
    )
    terminal, end = pty.openpty()
    inherited = {key: value for key, value in os.environ.items() if key not in ("TMUX", "TERM_PROGRAM")}
    paths = os.pathsep.join([str(Path(__file__).parent.parent), *(path for path in sys.path if path)])
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--quiet", "search", "red", str(folder), "-n", "1", *arguments],
        stdin=end,
        stdout=end,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=take_terminal,
        env=inherited
        | {"FISHERMIX_HOME": str(home), "PYTHONPATH": paths, "TERM": "xterm"}
        | (environment or {}),
    )
    os.close(end)
    printed, answered, deadline = b"", False, time.monotonic() + 100
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                printed += os.read(terminal, 65536)
            except OSError:  # the program has ended
                break
        if QUESTION in printed and not answered:
            answered = True
            os.write(terminal, reply)
    process.communicate(timeout=60)
    os.close(terminal)
    return printed.replace(QUESTION, b"").replace(b"\r\n", b"\n")


def take_terminal():
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize(
    ("reply", "environment", "decode"),
    [
        (b"\x1b_Gi=31;OK\x1b\\\x1b[?62;c", {}, decode_kitty),
        (b"\x1b[?62;4c", {}, decode_sixel),
        (b"", {"TERM_PROGRAM": "iTerm.app"}, decode_iterm2),
    ],
)
def test_search_preview_shows_the_photo(tmp_path, reply, environment, decode):
    paint(tmp_path / "photos" / "red.png", "red", size=(60, 40))
    printed = run_in_terminal(tmp_path / "photos", tmp_path / "home", reply, environment)
    line, _, picture = printed.partition(b"\n")
    assert line.endswith(b"red.png")
    image = decode(picture).convert("RGB")
    assert image.size == (60, 40)
    assert np.abs(np.asarray(image, int) - (220, 20, 20)).max() <= 3


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
def test_a_terminal_without_pictures_gets_none(tmp_path):
    paint(tmp_path / "photos" / "red.png", "red", size=(60, 40))
    printed = run_in_terminal(tmp_path / "photos", tmp_path / "home", b"\x1b[?1;2c")
    assert printed.count(b"\n") == 1
    assert b"\x1b" not in printed
    printed = run_in_terminal(tmp_path / "photos", tmp_path / "home", b"\x1b_Gi=31;OK\x1b\\", arguments=())
    assert b"\x1b" not in printed  # not asked, not shown
