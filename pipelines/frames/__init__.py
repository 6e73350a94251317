"""Private means of data frames: pandas, polars, DuckDB relations, pyarrow, whatever speaks Arrow."""
