"""`meanstream explain` and `plan`: what a configuration protects and will answer."""
