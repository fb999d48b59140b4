"""The classifier that is constructed, not trained (exact.md)."""
