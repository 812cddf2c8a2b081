"""Ragged batches in torch, exact and fast. Needs torch, numpy and the standard library, nothing else."""
