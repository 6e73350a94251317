"""`meanstream run`: agents and rounds, on the engine or on Beam."""
