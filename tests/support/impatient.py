"""`hardmax serve` with a tenth of its patience for slow clients: `python tests/support/impatient.py`."""

import sys

from service.serving import connection
from service.serving.start import serve
from service.settings import load_settings

FASTER = 10

if __name__ == "__main__":
    for name in ("HEAD_S", "BODY_S", "STALL_S", "CHECK_S"):
        setattr(connection, name, getattr(connection, name) / FASTER)
    sys.exit(serve(load_settings()))
