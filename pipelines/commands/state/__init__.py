"""Commands that read or mend a store: `budget`, `dlq`, `ledger`."""
