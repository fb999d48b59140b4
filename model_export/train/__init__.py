"""From corpora to trained weights."""
