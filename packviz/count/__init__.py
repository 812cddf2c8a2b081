"""Counted, never timed: floating-point operations, operators, bytes, autograd nodes."""
