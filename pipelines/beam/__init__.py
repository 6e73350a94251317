"""Beam's side of what a pipeline is made of; users import `pipelines.agents` and `pipelines.rounds`."""
