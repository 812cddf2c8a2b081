"""Tensors in, tensors out, with torch alone: helpers, drop-in packing, and the fast ways to run an RNN."""
