"""Checks correctness: compares states, diagnoses batches, explains errors, and tries out captured graphs."""
