"""`fishermix serve`: the search page and its JSON API, for this machine alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import IndexOption, ModelOption, SentencesOption, open_index, open_model, say
from fishermix.errors import FishermixError


@app.command(epilog="Example: fishermix serve ~/Pictures, then open http://127.0.0.1:8321")
def serve(
    folder: Annotated[Path, typer.Argument(help="The folder that holds the photos.")] = Path("."),
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port on 127.0.0.1.")] = 8321,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    update: Annotated[bool, typer.Option("--update/--no-update", help="Look for new photos first.")] = True,
    index: IndexOption = None,
    sentences: SentencesOption = None,
    model: ModelOption = None,
) -> None:
    """Serve a page for searching a folder, and its JSON API, on 127.0.0.1 only.

    Type a sentence to see photos; drop a photo to get it described; click one to see why it matched.
    """
    try:
        import uvicorn

        from fishermix.server.app import SERVER, create_app
    except ImportError as error:
        raise FishermixError(
            f"the service needs {error.name}: pip install 'fishermix[serve]' brings it"
        ) from error
    from fishermix.retrieval.sentences import read_sentences

    read = read_sentences(sentences)
    listener = _listener(port)
    with open_index(folder, index, open_model(model), update) as photos:
        service = create_app(photos, read)
        say(f"open http://127.0.0.1:{port} in your browser; Ctrl-C ends it")
        if browser:
            import webbrowser

            webbrowser.open(f"http://127.0.0.1:{port}")
        uvicorn.Server(uvicorn.Config(service, **SERVER)).run(sockets=[listener])


def _listener(port: int):
    """The socket, taken before the photos are looked at, so that a port in use is found out at once."""
    import socket

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise FishermixError(
            f"port {port} cannot be used ({error.strerror}): choose another with --port"
        ) from error
    return listener
