"""Clouds of points run to their limits, and the matrix that chooses their leaders."""
