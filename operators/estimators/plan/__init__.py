"""Estimators whose stages are planned from what is public."""
