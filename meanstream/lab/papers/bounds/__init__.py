"""The papers' bounds on the error of a mean over users, as numbers."""
