"""Agents that move from one store to another."""
