"""The paper's pairwise releases, one noise stream per ordered pair."""
