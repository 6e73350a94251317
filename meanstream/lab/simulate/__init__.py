"""`meanstream simulate` and `theory`."""
