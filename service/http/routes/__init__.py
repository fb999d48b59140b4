"""One router per resource, without domain logic."""
