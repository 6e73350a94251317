"""Schemas of values and of our own events, from a Schema Registry."""
