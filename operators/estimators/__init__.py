"""Estimators of rounds; a paper with several of them has a folder."""
