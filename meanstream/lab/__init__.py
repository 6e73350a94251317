"""Papers, simulation, evidence and demo: what stands on the core, and nothing stands on it."""
