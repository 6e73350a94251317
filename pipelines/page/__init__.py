"""The live page: what it shows, and the server that shows it on this machine only."""
