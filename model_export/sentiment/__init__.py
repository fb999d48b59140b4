"""The sentiment model: torch, graph, export."""
