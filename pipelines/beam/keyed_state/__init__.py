"""What is kept per key, and what says whose it is."""
