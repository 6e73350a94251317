"""From lines and messages to samples."""
