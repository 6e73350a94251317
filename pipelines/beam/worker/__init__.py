"""What each worker has: steps, windows, metrics, the secret."""
