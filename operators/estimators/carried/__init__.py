"""One mean per window where windows repeat.

Reports are requested where the last windows' results point.
"""
