"""Exit status 0 when the server of this container answers /ready with 200; needs no curl and no packages."""

import http.client
import os
import sys

connection = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("HARDMAX_PORT") or 8000), timeout=4)
try:
    connection.request("GET", "/ready")
    sys.exit(connection.getresponse().status != 200)
except OSError as unreachable:
    sys.exit(f"not reachable: {unreachable}")
