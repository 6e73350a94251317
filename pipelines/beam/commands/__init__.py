"""How commands run on a Beam runner."""
