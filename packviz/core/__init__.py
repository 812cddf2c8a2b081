"""Describes the layout of a batch, and offers helpers to all subpackages. It needs only NumPy and Python itself."""
