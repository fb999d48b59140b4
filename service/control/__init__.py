"""Find a matrix under which chosen points lead, and prove that it works or that none exists."""
