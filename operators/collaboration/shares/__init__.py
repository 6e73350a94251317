"""Shares of an agent's samples by bins.

A prior of everyone's noised histograms, quantiles and exceedances.
"""
