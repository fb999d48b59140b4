"""What a model is worth, and whether a bundle computes what the definition says of its weights."""
