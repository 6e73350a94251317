"""What Prometheus sees."""
