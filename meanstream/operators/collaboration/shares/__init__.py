"""Shares of an agent's samples by bins: a prior of everybody's noised histograms, quantiles and exceedances."""
