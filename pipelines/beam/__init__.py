"""Beam's side of what a pipeline is made of; users import `agents` and `rounds`."""
