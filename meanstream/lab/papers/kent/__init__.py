"""Estimators after Kent, Berrett and Yu: univariate, vectors, densities, mixtures."""
