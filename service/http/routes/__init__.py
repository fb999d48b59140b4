"""One router a resource: HTTP in, HTTP out, and no logic of its own."""
