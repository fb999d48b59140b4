"""Files of rows: reading them, finding what a column holds, and writing answers beside the rows."""
