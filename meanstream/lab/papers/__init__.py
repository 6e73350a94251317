"""Literal reproductions of the papers.

Nothing of the core needs them, and they are loaded by name.
"""
