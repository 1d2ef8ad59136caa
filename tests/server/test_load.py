"""10,000 requests from 8 clients on loopback, without an error."""

import json
import subprocess
import sys
from pathlib import Path

REQUESTS = 10_000


def test_ten_thousand_requests(address, index):
    ids = [index.store.id_of(path) for path in list(index.store.stamps())[:20]]
    script = Path(__file__).with_name("load_clients.py")
    command = [sys.executable, str(script), *map(str, address), str(REQUESTS), *ids]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(result.stdout) == {"200": REQUESTS}
