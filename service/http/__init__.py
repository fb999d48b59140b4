"""HTTP: middleware, bodies, routes, and errors as responses."""
