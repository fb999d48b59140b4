"""The graph that runs clouds of points to their certified limits."""
