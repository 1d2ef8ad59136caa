"""`fishermix serve`: the search page and its JSON API, for this machine only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import (
    IndexOption,
    MaxPixelsOption,
    ModelOption,
    SentencesOption,
    open_index,
    open_model,
    say,
    tell,
)
from fishermix.errors import FishermixError
from fishermix.extras import install_command


@app.command(epilog="Example: fishermix serve ~/Pictures, then open http://127.0.0.1:8321")
def serve(
    folder: Annotated[Path, typer.Argument(help="The folder that contains the photos.")] = Path("."),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 8321,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
    update: Annotated[
        bool, typer.Option("--update/--no-update", help="Look for new, changed and deleted photos first.")
    ] = True,
    index: IndexOption = None,
    sentences: SentencesOption = None,
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Serve a page for searching a folder, and its JSON API, on 127.0.0.1 only.

    Type a sentence to find photos, drop a photo to get a description, click a photo to see why it matches.
    """
    try:
        import uvicorn

        from fishermix.server.app import SERVER, create_app
    except ImportError as error:
        raise FishermixError(
            f"The server needs {error.name}. Install it with `{install_command('serve')}`."
        ) from error
    from fishermix.retrieval.sentences import read_sentences

    candidates = read_sentences(sentences)
    listener = _bind(port)
    tell("Loading the model.")
    loaded = open_model(model)
    if update:
        tell(f"Looking for new, changed and deleted photos in {folder}.")
    with open_index(folder, index, loaded, update) as photos:
        tell("Loading the image encoder and the captioner.")
        service = create_app(photos, candidates)
        say(f"Open http://127.0.0.1:{port} in your browser. Press Ctrl-C to stop.")
        if browser:
            import webbrowser

            webbrowser.open(f"http://127.0.0.1:{port}")
        uvicorn.Server(uvicorn.Config(service, **SERVER)).run(sockets=[listener])


def _bind(port: int):
    """A socket, bound before the photos are indexed, so that a port in use is reported at once."""
    import socket

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise FishermixError(
            f"Port {port} cannot be used ({error.strerror}). Choose another with --port."
        ) from error
    return listener
