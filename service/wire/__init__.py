"""Requests in, documents out, and what a request may cost: the same over HTTP and without a server."""
