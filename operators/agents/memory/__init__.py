"""Memories that forget: half-lives and windows of an agent's samples."""
