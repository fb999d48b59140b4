"""Requests and answers as documents: the same over HTTP and without a server."""
