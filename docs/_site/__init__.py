"""What Sphinx is given beside its own extensions."""
