"""Several value columns of one frame under one budget, sums, and ratios of two columns."""
