"""Continual counting: noisy prefix sums and the covariance of their noise."""
