"""Clients at once: `python load_clients.py HOST PORT CLIENTS REQUESTS SECONDS ID...` prints, as JSON, a count
of the statuses and the milliseconds within which half and 95 % of the requests were answered. It stops after
so many seconds.
"""

import collections
import http.client
import io
import json
import statistics
import sys
import threading
import time

from PIL import Image

host, (port, clients, requests), ids = sys.argv[1], map(int, sys.argv[2:5]), sys.argv[6:]
until = time.monotonic() + float(sys.argv[5])
picture = io.BytesIO()
Image.new("RGB", (64, 48), (220, 20, 20)).save(picture, "JPEG")
statuses: collections.Counter[str] = collections.Counter()
milliseconds: list[float] = []


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
    for number in range(start, requests, clients):
        method, path, body = requests_of(number // clients)
        began = time.monotonic()
        if began > until:
            break
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            content = answer.read()
            statuses[str(answer.status) if content else "empty"] += 1
        except (OSError, http.client.HTTPException) as error:
            statuses[type(error).__name__] += 1
            connection.close()
        milliseconds.append(1000 * (time.monotonic() - began))


threads = [threading.Thread(target=client, args=(start,)) for start in range(clients)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
slow = statistics.quantiles(milliseconds, n=20)
print(json.dumps({"statuses": statuses, "half": round(slow[9], 1), "p95": round(slow[18], 1)}))
