"""Groups within groups of a frame: a prior per level, and the means of all levels."""
