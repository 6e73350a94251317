"""The engine of agents."""
