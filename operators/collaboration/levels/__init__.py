"""Groups within groups: a prior for each level, whose child groups are centered on what their parent is known to be."""
