"""How the committed notebooks are written from their sources, checked, and run."""
