"""Counts floating-point operations, operators, bytes and autograd nodes, and measures no time."""
