"""Eight clients at once: `python load_clients.py HOST PORT REQUESTS ID...` prints a count of the statuses
as JSON.
"""

import collections
import http.client
import io
import json
import sys
import threading

from PIL import Image

CLIENTS = 8
host, port, requests, ids = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
picture = io.BytesIO()
Image.new("RGB", (64, 48), (220, 20, 20)).save(picture, "JPEG")
statuses: collections.Counter[str] = collections.Counter()


def requests_of(number):
    photo = ids[number % len(ids)]
    return [
        ("GET", "/api/search?q=red+white&n=20", None),
        ("GET", f"/api/photos/{photo}", None),
        ("GET", f"/api/similar?id={photo}", None),
        ("GET", f"/api/explain?q=red+blue&id={photo}", None),
        ("GET", "/api/status", None),
        ("POST", "/api/similar", picture.getvalue()),
        ("POST", "/api/caption", picture.getvalue()),
        ("GET", "/", None),
    ][number % 8]


def client(start):
    connection = http.client.HTTPConnection(host, port, timeout=60)
    for number in range(start, requests, CLIENTS):
        method, path, body = requests_of(number // CLIENTS)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            content = answer.read()
            statuses[str(answer.status) if content else "empty"] += 1
        except (OSError, http.client.HTTPException) as error:
            statuses[type(error).__name__] += 1
            connection.close()


threads = [threading.Thread(target=client, args=(start,)) for start in range(CLIENTS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(statuses))
