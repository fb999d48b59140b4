"""HTTP: what every request passes, how bodies are read, and how failures become answers."""
