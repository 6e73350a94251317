"""The paper's pairs on Beam."""
