"""`python small_server.py FOLDER FILES SECONDS` serves a tiny library with this many descriptors and this
many seconds for the head of a request; prints its port.
"""

import contextlib
import logging
import resource
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fishermix_photos.server.app import create_app
from fishermix_photos.server.connections import Server
from serving import make_library, show
from tiny_model import NAMES, TinyModel, paint

folder, files = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
logging.basicConfig()
for name in NAMES:
    paint(folder / "photos" / f"{name}.png", name)
with make_library(folder / "photos", folder / "library", TinyModel()) as library:
    app = create_app(show(library))
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    server = Server(app, head_seconds=float(sys.argv[3]))
    print(listener.getsockname()[1], flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
