"""The embedded engine: events, sources, sinks, ledger and snapshot store around the operators, in one process."""
