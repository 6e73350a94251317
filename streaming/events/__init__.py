"""What is on the wire: events, their bytes, ids and times."""
