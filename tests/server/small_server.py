"""`python small_server.py FOLDER FILES SECONDS` serves a tiny index with this many descriptors and this many
seconds for the head of a request; prints its port.
"""

import logging
import resource
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import uvicorn
from tiny_model import NAMES, TinyModel, paint

from fishermix.retrieval.index import PhotoIndex
from fishermix.server import connections
from fishermix.server.app import SERVER, create_app

folder, files = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
connections.HEAD_SECONDS = float(sys.argv[3])
logging.basicConfig()
for name in NAMES:
    paint(folder / "photos" / f"{name}.png", name)
with PhotoIndex(folder / "photos", TinyModel(), folder / "index") as index:
    index.update()
    app = create_app(index, [f"a {name} picture" for name in NAMES])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    server = uvicorn.Server(uvicorn.Config(app, **SERVER))
    print(listener.getsockname()[1], flush=True)
    server.run(sockets=[listener])
