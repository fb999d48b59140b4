"""Classification of sequences of points by transformers constructed for them."""
