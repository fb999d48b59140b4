"""The classifier that is constructed, not trained (docs/exact.md)."""
