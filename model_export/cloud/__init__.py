"""The graph that screens the scores of point clouds."""
