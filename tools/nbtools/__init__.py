"""Writes the committed notebooks from their sources, checks them, and runs them."""
