"""Simulators vectorized over (runs, agents).

The only place in the operators with unkeyed, seeded randomness.
"""
