"""`meanstream reproduce`: the papers' figures."""
