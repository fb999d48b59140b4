"""How the application is run: uvicorn with its workers and signals, or Ray Serve."""
