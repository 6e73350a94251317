"""Adapters to other systems, each with an extra of its own.

They stand on all else, which loads them by name.
"""
