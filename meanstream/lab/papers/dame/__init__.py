"""DAME, Duchi's interactive mean, and the baselines that papers compare with."""
