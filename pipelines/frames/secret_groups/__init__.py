"""Private means of groups whose names and numbers of rows are secret."""
