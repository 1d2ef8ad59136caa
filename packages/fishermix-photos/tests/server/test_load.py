"""10,000 requests from 8 clients on loopback, without an error."""

import json
import subprocess
import sys
from pathlib import Path

from fishermix_photos.results import Query

REQUESTS = 10_000


def test_ten_thousand_requests(address, library):
    ids = [photo.id for photo in library.browse(Query(n=20)).photos]
    script = Path(__file__).with_name("load_clients.py")
    command = [sys.executable, str(script), *map(str, address), str(REQUESTS), *ids]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(result.stdout) == {"200": REQUESTS}
