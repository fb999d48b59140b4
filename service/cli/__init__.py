"""The command line: parses, calls the client or the server, prints."""
