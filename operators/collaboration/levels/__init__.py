"""Groups within groups: a prior per level, centered on what is known of the parent."""
