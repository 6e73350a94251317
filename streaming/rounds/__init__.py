"""Rounds on a stream: windows, users' sums, reports and estimates; the same pieces for the engine and for Beam."""
