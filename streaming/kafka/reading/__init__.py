"""Topics as sources of records."""
