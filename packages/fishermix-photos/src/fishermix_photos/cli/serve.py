"""`fishermix serve`: the search page and its JSON API, for this machine or, with a token, a network."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fishermix.errors import FishermixError, install_command

from fishermix_photos.cli import app, options
from fishermix_photos.cli.common import open_library, say, tell
from fishermix_photos.cli.search import tell_changes

if TYPE_CHECKING:
    from fishermix_photos.library import PhotoLibrary
    from fishermix_photos.server.access import Access


@app.command(
    examples=[
        "fishermix serve ~/Pictures, then open http://127.0.0.1:8321",
        "fishermix serve ~/Pictures ~/Camera",
        "fishermix serve ~/Pictures --host 0.0.0.0, then scan the QR code with your phone",
    ]
)
def serve(
    folders: options.ServedFolders = None,
    port: options.Port = 8321,
    host: options.Host = "127.0.0.1",
    token: options.Token = False,
    browser: options.Open = False,
    update: options.Update = True,
    text: options.ReadText = False,
    library: options.Library = None,
    model: options.Model = None,
) -> None:
    """Search your photos in a browser. Only this machine can connect unless you give --host.

    Type a sentence to find photos, drop a photo on the page to get a caption, click a photo to see why it
    matches. The page opens at once and shows new photos as they are encoded.
    """
    _expect_packages()
    if text:
        _expect_reading(update)
    import webbrowser

    from fishermix_photos.photos.text import TextReader
    from fishermix_photos.server.access import Access, find_own_address, is_loopback
    from fishermix_photos.server.app import create_app
    from fishermix_photos.server.connections import Server
    from fishermix_photos.server.live import Events, LiveLibrary

    def stop_server() -> None:
        server.should_exit = True

    # What is wrong with the library is said before the address, and before the model is loaded.
    with _open_photos(library, model, folders or (), update) as photos:
        is_empty = not folders and not photos.folders()
    access = Access(is_loopback(host), token)
    listener = _bind(host, port)
    reached = find_own_address(host)
    address = f"http://{f'[{reached}]' if ':' in reached else reached}:{port}"
    events = Events(
        say=tell,
        ready=lambda: say(f"Ready: {address} answers queries."),
        updated=lambda changes: tell_changes(live.library, changes),
        failed=stop_server,
    )
    open_photos = partial(_open_photos, library, model, folders or (), update)
    live = LiveLibrary(open_photos, folders or (), update, events, TextReader if text else None)
    server = Server(create_app(live, access=access))
    link = _say_address(address, access)
    if is_empty:
        tell("Your library is empty. Add a folder on the page, or name one: `fishermix serve ~/Pictures`.")
    live.start()
    if browser:
        webbrowser.open(link)
    try:
        server.run(sockets=[listener])  # until Ctrl-C, or until the library turns out to be unusable
    finally:
        live.stop()
    if live.failure is not None:
        raise live.failure


def _expect_packages() -> None:
    """Raise if a package of the server is not installed."""
    for package in ("fastapi", "uvicorn", "segno"):
        if find_spec(package) is None:
            command = install_command("fishermix-photos[serve]")
            raise FishermixError(
                f"The server needs {package}. Install it with `{command}`.", code="missing_package"
            )


def _expect_reading(update: bool) -> None:
    """Raise if no text will be read."""
    from fishermix_photos.photos.text import expect_reader

    expect_reader()
    if not update:
        raise FishermixError(
            "--text changes the library, and --no-update changes nothing. Omit one of them.",
            code="wrong_parameter",
        )


def _open_photos(
    place: str | None, model: Path | None, folders: Sequence[Path], update: bool
) -> PhotoLibrary:
    """The library; raises if there is nothing to serve, and never will be."""
    library = open_library(place, model)
    if not folders and not library.folders():
        library.expect_there()
        if not update:
            raise FishermixError(
                "Your library is empty. Add a folder: `fishermix library add ~/Pictures`.",
                code="empty_library",
            )
    for folder in folders:
        if folder.expanduser().is_file():
            raise FishermixError(
                f"{folder} is a file. Name the folder that contains your photos.", code="wrong_folder"
            )
        if not folder.expanduser().is_dir() and library.covering(folder) is None:
            raise FishermixError(
                f"There is no folder {folder}. Name the folder that contains your photos.", code="not_found"
            )
    return library


def _bind(host: str, port: int) -> socket.socket:
    """A socket, bound before anything is loaded, so that a port in use is reported at once."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise FishermixError(
            f"--host {host} is not an address of this machine ({error.strerror}).",
            code="wrong_address",
        ) from error
    listener = socket.socket(family, kind)
    if os.name == "posix":  # on Windows, it would allow two servers on one port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(place)
        listener.listen()  # a browser that comes before the server waits for it
    except OSError as error:
        listener.close()
        raise FishermixError(
            f"Port {port} cannot be used ({error.strerror}). Choose another with --port.",
            code="wrong_address",
        ) from error
    return listener


def _say_address(address: str, access: Access) -> str:
    """Print the address of the page, with a token as a link and a QR code; returns the link."""
    link = f"{address}/?token={access.token}"
    if not access.is_closed:  # the address alone shows everything; the link allows to add folders
        say(f"Open {link} in your browser. Press Ctrl-C to stop.")
        return link
    print_qr_code(link)
    say("Open this link, or scan the code with your phone. Press Ctrl-C to stop.")
    say(link)
    if not access.local:
        tell(
            "Anyone who can listen on this network can read what is sent, even the token. Use it only on "
            "networks that you trust."
        )
    return link


def print_qr_code(text: str) -> None:
    """Print a QR code of half blocks."""
    import segno

    code = segno.make(text, error="l", micro=False)
    with contextlib.suppress(UnicodeEncodeError):  # a terminal without block characters
        code.terminal(out=sys.stdout, border=2, compact=True)
    sys.stdout.flush()
