"""10,000 requests from 8 clients on loopback, without an error; `make requests` sends more."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fishermix_photos.search.results import Query

CLIENTS, REQUESTS, SECONDS = 8, 10_000, 300


@pytest.mark.slow
def test_ten_thousand_requests(address, library):
    ids = [photo.id for photo in library.browse(Query(n=20)).photos]
    script = Path(__file__).with_name("load_clients.py")
    numbers = map(str, (*address, CLIENTS, REQUESTS, SECONDS))
    command = [sys.executable, str(script), *numbers, *ids]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout)["statuses"] == {"200": REQUESTS}
