"""The wire format: what travels as JSON, with the limits and examples that the documentation shows."""
