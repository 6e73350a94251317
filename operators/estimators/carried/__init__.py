"""One mean per window where windows repeat: reports are requested where the last windows' results point."""
