"""Dead letters, and records that are read again."""
