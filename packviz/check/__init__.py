"""Checks the correctness of packing: compares states, diagnoses batches, explains errors, and tests captured graphs."""
