"""What a model is worth, and whether a bundle is what was trained."""
