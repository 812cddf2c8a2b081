"""Lengths in, places out: pure values, from NumPy and the standard library. Knows no other wing."""
