"""Topics as sinks, in transactions."""
