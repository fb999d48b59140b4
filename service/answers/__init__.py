"""From documents of requests to results and back: the same over HTTP and without a server."""
