"""The variance of one sample, of each agent or of all, from what is released."""
