"""Measure a model, and verify that a bundle gives the results of the definition."""
