"""`meanstream demo`: a year of flights, answered."""
