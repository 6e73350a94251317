"""The learned prior: its fit to releases, and the posterior of an agent's mean."""
