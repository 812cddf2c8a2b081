"""Describes the layout of a batch, and offers helpers to all subpackages. It needs no library except NumPy."""
