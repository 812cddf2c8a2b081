"""The layout of a batch, and helpers for all subpackages. This part uses only NumPy and the standard library."""
