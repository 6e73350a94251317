"""What a design will err by, before anyone sends anything."""
