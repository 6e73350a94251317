"""A trusted curator's estimators, after Cummings et al."""
