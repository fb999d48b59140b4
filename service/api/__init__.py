"""HTTP in, HTTP out: one module a resource, no logic of its own."""
