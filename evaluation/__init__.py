"""Tables of texts, their labels and the metrics of a model: used by the commands and by training."""
