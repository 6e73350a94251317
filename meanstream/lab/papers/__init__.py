"""Literal reproductions of the papers: nothing of the core needs them, and they are loaded by name."""
