"""Describes the layout of a batch, and provides helpers for all other subpackages. The only dependency is NumPy."""
