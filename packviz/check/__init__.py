"""Compares states, diagnoses batches, explains errors, and tests captured graphs."""
