"""Provides drop-in packing, helpers for padded batches, and fast ways to run an RNN.

Needs only torch and NumPy.
"""
