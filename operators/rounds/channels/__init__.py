"""Channels: a user's value as one randomized number."""
