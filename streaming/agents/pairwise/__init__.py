"""Agents that query each other: their store, engine, estimates and partners."""
