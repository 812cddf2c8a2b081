"""Counts floating-point operations, operators, bytes and autograd nodes. Nothing here measures time."""
