"""Who may release what: the stores that partitions, and agents, of a topic belong to."""
