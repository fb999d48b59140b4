"""Tables of texts, their labels and the measures of a model: used by the commands and by training."""
