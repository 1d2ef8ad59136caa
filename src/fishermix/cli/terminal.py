"""Pictures in the terminal, where it says that it can show them: the protocols of Kitty, iTerm2 and sixel.

Kitty: https://sw.kovidgoyal.net/kitty/graphics-protocol. iTerm2: https://iterm2.com/documentation-images.html.
Sixel: the VT3xx manual, chapter 14; a terminal that has it lists attribute 4 in its reply to `ESC [ c`.
"""

from __future__ import annotations

import base64
import io
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

ROWS = 12  # of the terminal, for each picture
CELL = (9, 18)  # pixels, if the terminal does not say
CHUNK = 4096  # bytes of base64 in one command of Kitty
SECONDS_TO_REPLY = 1.0
# "Could you show a pixel in 24-bit RGB?" and "Which attributes do you have?": terminals answer the second.
QUESTION = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[c"
ATTRIBUTES = re.compile(rb"\x1b\[\?([\d;]*)c")


def find_protocol() -> str | None:
    """ "kitty", "iterm2" or "sixel"; None if standard output is no terminal, or shows no pictures."""
    if not sys.stdout.isatty():
        return None
    in_multiplexer = "TMUX" in os.environ or os.environ.get("TERM", "").startswith("screen")
    programs = os.environ.get("TERM_PROGRAM"), os.environ.get("LC_TERMINAL")
    if not in_multiplexer and {"iTerm.app", "iTerm2", "WezTerm"} & set(programs):
        return "iterm2"
    return read_reply(_ask_terminal())


def read_reply(reply: bytes) -> str | None:
    """The protocol that a terminal's reply to `QUESTION` names."""
    if b"\x1b_Gi=31;OK" in reply:
        return "kitty"
    found = ATTRIBUTES.search(reply)
    return "sixel" if found and b"4" in found[1].split(b";")[1:] else None


def _ask_terminal() -> bytes:
    try:
        import select
        import termios
        import tty
    except ImportError:  # Windows
        return b""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return b""
    reply = b""
    try:
        before = termios.tcgetattr(terminal)
        try:
            tty.setcbreak(terminal)
            os.write(terminal, QUESTION)
            while not ATTRIBUTES.search(reply) and select.select([terminal], [], [], SECONDS_TO_REPLY)[0]:
                reply += os.read(terminal, 1024)
        finally:
            termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
    except (OSError, termios.error):
        return b""
    finally:
        os.close(terminal)
    return reply


def show_photo(photo: Path, protocol: str) -> None:
    """Print a photo; one that cannot be read is skipped."""
    from fishermix.errors import FishermixError
    from fishermix.vision.images import open_photo

    columns, cell_width, cell_height = _measure_terminal()
    try:
        image = open_photo(photo, side=max(ROWS * cell_height, 64)).convert("RGB")
    except FishermixError:
        return
    image.thumbnail(((columns - 1) * cell_width, ROWS * cell_height))
    sys.stdout.flush()
    sys.stdout.buffer.write(encode_picture(image, protocol) + b"\n")
    sys.stdout.buffer.flush()


def _measure_terminal() -> tuple[int, int, int]:
    """Columns, and the width and height of a cell in pixels."""
    try:
        import fcntl
        import struct
        import termios

        size = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, bytes(8))
        rows, columns, width, height = struct.unpack("HHHH", size)
        if rows and columns:
            cell = (width // columns, height // rows) if width and height else CELL
            return columns, *cell
    except (ImportError, OSError):
        pass
    return 80, *CELL


def encode_picture(image: Image.Image, protocol: str) -> bytes:
    """The escape sequences that show a picture."""
    return {"kitty": _encode_kitty, "iterm2": _encode_iterm2, "sixel": _encode_sixel}[protocol](image)


def _encode_kitty(image: Image.Image) -> bytes:
    """PNG (f=100), transmitted and displayed (a=T) in chunks; m says whether more follow; q=2: no reply."""
    data = base64.b64encode(_save(image, "PNG"))
    chunks = [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]
    commands = []
    for number in range(len(chunks)):
        keys = f"m={int(number + 1 < len(chunks))}"
        commands.append(f"a=T,f=100,q=2,{keys}" if number == 0 else keys)
    return b"".join(
        b"\x1b_G" + keys.encode() + b";" + chunk + b"\x1b\\" for keys, chunk in zip(commands, chunks)
    )


def _encode_iterm2(image: Image.Image) -> bytes:
    data = _save(image, "PNG")
    head = f"\x1b]1337;File=inline=1;size={len(data)};width={image.width}px;height={image.height}px:"
    return head.encode() + base64.b64encode(data) + b"\x07"


def _encode_sixel(image: Image.Image) -> bytes:
    """256 colors, given in percent; bands of six rows, one pass over a band for each of its colors."""
    import numpy as np

    reduced = image.quantize(256)
    palette = np.array(reduced.getpalette(), np.int64).reshape(-1, 3)
    indexes = np.asarray(reduced)
    parts = [f'\x1bP0;1;0q"1;1;{image.width};{image.height}']
    for color in np.unique(indexes).tolist():
        red, green, blue = (int(100 * part / 255 + 0.5) for part in palette[color])
        parts.append(f"#{color};2;{red};{green};{blue}")
    for top in range(0, image.height, 6):
        band = indexes[top : top + 6]
        bits = (1 << np.arange(len(band)))[:, None]
        passes = [
            f"#{color}" + _repeat(((band == color) * bits).sum(axis=0)) for color in np.unique(band).tolist()
        ]
        parts.append("$".join(passes) + "-")
    return ("".join(parts) + "\x1b\\").encode()


def _repeat(columns) -> str:
    """Sixels of one color, runs of more than three as `!count`."""
    import numpy as np

    starts = np.flatnonzero(np.concatenate([[True], columns[1:] != columns[:-1]]))
    lengths = np.diff(np.append(starts, len(columns)))
    parts = []
    for value, length in zip(columns[starts].tolist(), lengths.tolist()):
        letter = chr(63 + value)
        parts.append(letter * length if length <= 3 else f"!{length}{letter}")
    return "".join(parts)


def _save(image: Image.Image, kind: str) -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()
