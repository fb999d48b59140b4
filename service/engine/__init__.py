"""What all models share: bytes, processes and the queue of clouds."""
