"""`meanstream report`: one file that shows a store."""
