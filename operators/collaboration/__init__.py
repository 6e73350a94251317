"""What agents learn of each other's releases: priors, tests, and the variance of one sample."""
