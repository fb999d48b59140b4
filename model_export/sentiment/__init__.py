"""The sentiment model: torch, graph, export, verification, evaluation."""
