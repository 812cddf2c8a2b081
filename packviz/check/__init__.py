"""Checks the correctness of packing.

It compares states, diagnoses batches, explains errors, and tests captured graphs.
"""
