"""The default estimator: windows that private votes for the users' spread ask for."""
