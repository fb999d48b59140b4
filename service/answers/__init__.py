"""What is asked and what is answered, as documents: the same over HTTP and without a server."""
