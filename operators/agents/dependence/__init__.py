"""How samples of one agent depend on each other: blocks, pairs and their energies."""
