"""From lengths to positions, and helpers for all subpackages. Uses only NumPy and the standard library."""
