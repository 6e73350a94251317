"""Shares of an agent's samples by bins: a prior of everyone's noised histograms, quantiles and exceedances."""
