"""Checks of correctness: states compared, batches diagnosed, errors explained, and captured graphs tried out."""
