"""Describes the layout of a batch, and provides helpers for all other subpackages.

It depends only on NumPy.
"""
