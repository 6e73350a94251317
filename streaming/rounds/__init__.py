"""Rounds on a stream.

Windows, users' sums, reports and estimates; the same pieces for the engine and for Beam.
"""
