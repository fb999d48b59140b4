"""The wire format: requests and answers as JSON, with limits and examples for the documentation."""
