"""Counted, never timed: floating-point operations, scores of attention, operators, bytes, autograd nodes."""
