"""Agents: many running means with a counter each, and the releases that they make."""
