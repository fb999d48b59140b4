"""Clouds of points run to their limits."""
