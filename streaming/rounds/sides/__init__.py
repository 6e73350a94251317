"""Rounds on two sides: users who report, and the statistician who asks."""
