"""Decisions from the answers of a frame: differences, comparisons, ranks and top lists, at no privacy cost."""
