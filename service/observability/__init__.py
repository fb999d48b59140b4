"""What operators see: metrics, log lines."""
