"""Commands that simulate and reproduce what the papers say."""
