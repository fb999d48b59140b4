"""The graph that finds, for clouds of points, the scores near the best."""
