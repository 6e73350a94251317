"""Agents on Beam, in parts."""
