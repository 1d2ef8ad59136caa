"""`fishermix serve`: the search page and its JSON API, for this machine or, with a token, a network."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fishermix.cli import app
from fishermix.cli.common import (
    ExcludeOption,
    FoldersArgument,
    IndexOption,
    MaxPixelsOption,
    ModelOption,
    SentencesOption,
    explain_empty,
    open_index,
    open_model,
    say,
    tell,
    tell_changes,
)
from fishermix.errors import FishermixError
from fishermix.extras import install_command

if TYPE_CHECKING:
    from fishermix.retrieval.index import PhotoIndex
    from fishermix.server.access import Access


@app.command(
    epilog="Examples: fishermix serve ~/Pictures, then open http://127.0.0.1:8321 · "
    "fishermix serve ~/Pictures ~/Camera · "
    "fishermix serve ~/Pictures --host 0.0.0.0, then scan the QR code with your phone"
)
def serve(
    folders: FoldersArgument = None,
    every: Annotated[bool, typer.Option("--all", help="Serve all folders that have an index.")] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8321,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. 0.0.0.0: all devices of your network that have the token can connect."
        ),
    ] = "127.0.0.1",
    token: Annotated[
        bool, typer.Option("--token", help="Ask for a token on this machine too; other hosts always do.")
    ] = False,
    cert: Annotated[
        Path | None, typer.Option("--cert", help="Certificate for HTTPS (PEM file, with its chain).")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="Private key of the certificate, if it is in another file.")
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
    update: Annotated[
        bool,
        typer.Option(
            "--update/--no-update", help="Follow the folder: new, changed and deleted photos appear."
        ),
    ] = True,
    poll: Annotated[
        bool,
        typer.Option("--poll", help="Look at the folder every few seconds instead of asking the system."),
    ] = False,
    exclude: ExcludeOption = None,
    index: IndexOption = None,
    sentences: SentencesOption = None,
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Serve a page for searching folders, and its JSON API, on 127.0.0.1 only unless --host is given.

    Type a sentence to find photos, drop a photo to get a description, click a photo to see why it matches.
    The page opens at once and shows the photos as they are indexed.
    """
    try:
        import uvicorn

        from fishermix.server.access import Access, create_token, is_loopback
        from fishermix.server.app import SERVER, create_app
        from fishermix.server.connections import LimitedServer
        from fishermix.server.live import LiveFolder
    except ImportError as error:
        raise FishermixError(
            f"The server needs {error.name}. Install it with `{install_command('serve')}`."
        ) from error
    from fishermix.retrieval.sentences import read_sentences

    candidates = read_sentences(sentences) if sentences else None
    places = _find_folders(folders or [], every, exclude or (), update)
    if index is not None and len(places) > 1:
        raise FishermixError("--index names the index of one folder. Name one folder.")
    tls = _check_certificate(cert, key)
    local = is_loopback(host)
    access = Access(create_token() if token or not local else None, local)
    listener = _bind(host, port)

    def open_photos() -> PhotoIndex:
        from fishermix.retrieval.index import PhotoIndex

        loaded = open_model(model)
        opened = list[PhotoIndex]()
        for place in places:
            try:
                if update:
                    photos = PhotoIndex(place, loaded, index, exclude=exclude or ())
                else:
                    photos = open_index(place, index, loaded, False, exclude)
                photos.check()
            except FishermixError as error:
                if len(places) == 1:
                    raise
                live.skip(f"{place} is skipped. {error}")
            else:
                opened.append(photos)
                if not update and not photos.store.summary().photos:
                    tell(explain_empty(photos, place, index))
        if not opened:
            raise FishermixError("None of the folders can be served.")
        if len(opened) == 1:
            return opened[0]
        from fishermix.retrieval.several_folders import SeveralFolders

        return SeveralFolders(opened)

    named = places[0] if len(places) == 1 else Path("FOLDER")  # in the command that lists unreadable files

    def stop_server() -> None:
        server.should_exit = True

    live = LiveFolder(
        places,
        open_photos,
        candidates,
        update,
        poll,
        on_first_update=lambda changes, photos: tell_changes(changes, photos, named, index),
        on_failure=stop_server,
        say=tell,
        on_ready=lambda: say(f"Ready: {address} answers queries."),
    )
    server = LimitedServer(uvicorn.Config(create_app(live, access=access), **SERVER, **tls))
    address = _make_address(host, port, bool(tls))
    link = _say_address(address, access)
    live.start()
    if browser:
        import webbrowser

        webbrowser.open(link)
    try:
        server.run(sockets=[listener])
    finally:
        live.stop()
        if live.is_ready and not live.count():
            live.service.index.close()  # the index of a folder without photos is not kept
    if live.failure is not None:
        raise live.failure


def _find_folders(given: list[Path], every: bool, exclude: Sequence[str], update: bool) -> list[Path]:
    """The absolute paths of the folders to serve; with `every`, also those that have an index."""
    from fishermix.retrieval.open import resolve_folder

    folders = [resolve_folder(folder) for folder in given]
    if every:
        from fishermix.retrieval.library import list_library

        found = [one.folder for one in list_library() if one.folder is not None and not one.is_orphan]
        if not found:
            raise FishermixError("No folder has an index yet. Name a folder: `fishermix serve FOLDER`.")
        folders += [resolve_folder(folder) for folder in found]
    if not folders:
        return [resolve_folder(Path("."))]
    from fishermix.retrieval.several_folders import drop_inner_folders

    return drop_inner_folders(folders, exclude, update)


def _check_certificate(cert: Path | None, key: Path | None) -> dict[str, Any]:
    """The settings of uvicorn for HTTPS; raises if the certificate cannot be used."""
    if cert is None:
        if key is not None:
            raise FishermixError("--key needs --cert. Name the certificate too.")
        return {}
    import ssl

    try:
        # Without a password: an encrypted key must not stop the server with a question.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key, lambda: b"")
    except (OSError, ValueError) as error:
        raise FishermixError(
            f"The certificate {cert} cannot be used ({error}). --cert and --key name PEM files; the key "
            "must not be encrypted."
        ) from error
    return {"ssl_certfile": str(cert)} | ({"ssl_keyfile": str(key)} if key is not None else {})


def _bind(host: str, port: int):
    """A socket, bound before anything is loaded, so that a port in use is reported at once."""
    import socket

    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise FishermixError(f"--host {host} is no address of this machine ({error.strerror}).") from error
    listener = socket.socket(family, kind)
    if os.name == "posix":  # on Windows, it would allow two servers on one port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(place)
        listener.listen()  # a browser that comes before the server waits for it
    except OSError as error:
        listener.close()
        raise FishermixError(
            f"Port {port} cannot be used ({error.strerror}). Choose another with --port."
        ) from error
    return listener


def _make_address(host: str, port: int, https: bool) -> str:
    """The address of the page."""
    from fishermix.server.access import find_own_address

    scheme, reached = "https" if https else "http", find_own_address(host)
    return f"{scheme}://{f'[{reached}]' if ':' in reached else reached}:{port}"


def _say_address(address: str, access: Access) -> str:
    """Print the address of the page, with a token as a link and a QR code; returns the link."""
    if access.token is None:
        say(f"Open {address} in your browser. Press Ctrl-C to stop.")
        return address
    link = f"{address}/?token={access.token}"
    print_qr_code(link)
    say(f"Open this link, or scan the code with your phone. Press Ctrl-C to stop.\n{link}")
    if not address.startswith("https:") and not access.local:
        tell(
            "Without --cert, whoever can listen to this network can read what is sent, the token included. "
            "Use it in networks that you trust."
        )
    return link


def print_qr_code(text: str) -> None:
    """Print a QR code of half blocks; without segno, nothing."""
    try:
        import segno
    except ImportError:
        tell(f"The QR code needs segno. Install it with `{install_command('serve')}`.")
        return
    code = segno.make(text, error="l", micro=False)
    with contextlib.suppress(UnicodeEncodeError):  # a terminal without block characters
        code.terminal(out=sys.stdout, border=2, compact=True)
    sys.stdout.flush()
