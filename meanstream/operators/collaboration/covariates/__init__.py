"""Public covariates: attributes of agents that everybody knows, and what the releases say of their effects."""
