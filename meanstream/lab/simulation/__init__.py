"""Simulators vectorized over (runs, agents); the only place in the operators with unkeyed, seeded randomness."""
