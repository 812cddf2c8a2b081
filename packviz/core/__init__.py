"""Lengths in, places out, and the small things all wings need. NumPy and the standard library; knows no other wing."""
