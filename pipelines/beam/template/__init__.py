"""Flex templates of Dataflow: parameters, their metadata, and the entry that the launcher calls."""
