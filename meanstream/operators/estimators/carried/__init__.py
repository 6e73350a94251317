"""One mean per window where windows repeat: reports are asked where the last windows' results point."""
