"""The store: one SQLite file with the ledger, the snapshots and the outputs of an engine."""
