"""Means that move, and samples that depend on each other."""
