"""Sequences of points to labels, by transformers constructed for them."""
