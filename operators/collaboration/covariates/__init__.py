"""Public covariates: attributes of agents that everyone knows, and what the releases say of their effects."""
