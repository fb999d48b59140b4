"""Classification of texts with exact explanations."""
