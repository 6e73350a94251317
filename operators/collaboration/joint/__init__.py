"""What the answers of several agents say together: differences, comparisons and ranks."""
