"""Votes: a user's choice among bins, randomized."""
