"""The same model behind other servers, each written as its own documentation advises."""
