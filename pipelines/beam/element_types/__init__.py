"""What elements of a pipeline are, and how they are packed."""
