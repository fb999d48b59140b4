"""Sentiment of texts with its exact reason."""
