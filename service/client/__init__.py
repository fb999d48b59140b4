"""Clients for programs: over HTTP, or in this process without a server."""
