"""The matrix that chooses the leaders of a cloud, with the proof that it does or that none can."""
