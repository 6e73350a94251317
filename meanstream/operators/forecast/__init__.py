"""What a design will err by, before anybody sends anything."""
