"""How good a model is on labelled rows: as numbers, as lines, as a page. It knows answers, not models."""
