"""The classifier that is constructed, not trained (arXiv 2502.02270)."""
