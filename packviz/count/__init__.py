"""Counts floating-point operations, operators, bytes and autograd nodes, and never measures time."""
