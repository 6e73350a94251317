"""Rounds on Beam, in parts."""
