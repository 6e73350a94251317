"""Adapters to other systems, each with an extra of its own: they stand on all else, which loads them by name."""
