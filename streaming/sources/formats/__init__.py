"""Formats of records and files: CSV, JSON Lines, Avro, Parquet."""
