"""Private means of data frames.

Pandas, polars, DuckDB relations, pyarrow, whatever speaks Arrow.
"""
