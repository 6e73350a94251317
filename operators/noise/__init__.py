"""Keyed noise on an integer grid, and what calibrates it."""
